// Searches the process's pool, including the heap, for bytes: for a secret that should be wiped.
#pragma once

#include <cstring>
#include <string_view>

#include "pinned_pool/pinned_pool.h"

namespace bedplate::test {

// `sought` must lie outside the pool, as a static array does. Leave out the secret's beginning:
// free may have overwritten it.
inline bool is_in_heap(std::string_view sought) {
  const PinnedPool& pool = process_pool();
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    if (memmem(segment.address, segment.bytes, sought.data(), sought.size()) != nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace bedplate::test
