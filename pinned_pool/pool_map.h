// The pool map: the pool's segments as plain data that another process can read.
//
// The audit compares it with the kernel's mappings. The counters file has the same data, one set
// for each segment; `stats` rebuilds the map from these sets, without the nodes (docs/counters.md).
//
// It is a copy: PinnedPool::write_map makes it, and it belongs to the caller. A copy made after the
// seal stays current; an earlier copy shows the segments complete at that time. The numbers of a
// segment have 64 bits, as counters do. Threads: any, as any value. It holds no memory: its
// addresses are valid only in its own process, and in processes that joined, which map the same
// addresses.
#pragma once

#include <cstdint>
#include <type_traits>

#include "pinned_pool/layout.h"
#include "pinned_pool/owner_name.h"
#include "platform/numa.h"

namespace bedplate {

struct PoolMapSegment {
  OwnerName owner;
  uint64_t address = 0;         // a multiple of 1 GiB
  uint64_t bytes = 0;           // mapped; a multiple of the page
  uint64_t page_bytes = 0;      // 4 KiB, 2 MiB or 1 GiB
  uint64_t device = 0;          // this and the inode: st_dev and st_ino of its memfd
  uint64_t inode = 0;           // 0: it has no memfd, and is private
  uint64_t is_locked = 0;       // by this process's mlock; 0 for hugepages, which need none
  int64_t node = kAnyNode;      // the node that its pages were requested from
  uint64_t is_writable = 1;     // in this process
  uint64_t has_write_seal = 0;  // of its memfd
};

struct PoolMap {
  uint32_t segment_count = 0;                 // of `segments`, from the first
  uint32_t is_sealed = 0;                     // a number, not a bool: other processes read it
  PoolMapSegment segments[kSegmentCountMax];  // in the pool's order; segment 0 first
};
static_assert(std::is_trivially_copyable_v<PoolMap>);

}  // namespace bedplate
