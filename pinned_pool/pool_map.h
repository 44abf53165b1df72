// The pool map: what the pool consists of, as plain data that can be read by another process.
//
// The audit compares it with what the kernel says is mapped. The counters file has the same, each
// segment as a set of its own, from which `stats` makes the map again (docs/counters.md).
#pragma once

#include <cstdint>
#include <type_traits>

#include "pinned_pool/layout.h"
#include "pinned_pool/owner_name.h"
#include "platform/numa.h"

namespace bedplate {

struct PoolMapSegment {
  OwnerName owner;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t page_bytes = 0;
  uint64_t device = 0;  // with the inode, which file it is: st_dev and st_ino of its memfd
  uint64_t inode = 0;
  uint64_t is_locked = 0;  // by mlock; hugepages need none
  int64_t node = kAnyNode;
  uint64_t is_writable = 1;
  uint64_t has_write_seal = 0;  // of its memfd
};

struct PoolMap {
  uint32_t segment_count = 0;
  uint32_t is_sealed = 0;  // a number, not a bool: other processes read it
  PoolMapSegment segments[kSegmentCountMax];
};
static_assert(std::is_trivially_copyable_v<PoolMap>);

}  // namespace bedplate
