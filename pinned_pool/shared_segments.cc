#include "pinned_pool/shared_segments.h"

#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"

// fork_rule.cc only tests if this symbol is linked.
extern "C" const char bedplate_shares_segments = 1;

namespace bedplate {

void require_shared_segments(const PinnedPool& pool) noexcept {
  for (uint32_t i = 0; i < pool.segment_count(); ++i) BP_ASSERT(!pool.segment(i).is_private());
}

}  // namespace bedplate
