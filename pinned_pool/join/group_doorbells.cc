#include "pinned_pool/join/group_doorbells.h"

#include <algorithm>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

void GroupDoorbells::changed(uint32_t group, bool is_urgent) noexcept {
  BP_ASSERT(control_.is_caller());
  uint64_t& due = due_ns_[group];
  if (is_urgent) {
    due = 1;
  } else if (due == 0) {
    due = monotonic_ns() + kRingWithinNs;
  }
}

void GroupDoorbells::ring_due() noexcept {
  uint64_t now = 0;
  for (uint32_t i = 0; i < roster_.group_count(); ++i) {
    if (due_ns_[i] == 0) continue;
    if (now == 0) now = monotonic_ns();
    if (now < due_ns_[i]) continue;
    due_ns_[i] = 0;
    roster_.group(i).keeper->wake_members();
  }
}

uint64_t GroupDoorbells::due_ns() const noexcept {
  uint64_t due = UINT64_MAX;
  for (const uint64_t of_group : due_ns_) {
    if (of_group != 0) due = std::min(due, of_group);
  }
  return due;
}

}  // namespace bedplate
