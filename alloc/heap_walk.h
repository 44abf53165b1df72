// The heap's contents: the used and free bytes of each size class, and the largest free range. This
// covers the arenas that serve all owners (heap_arena_is_open), so neither reserves nor segment 0
// of an appliance after boot. The result is a snapshot: other threads allocate meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

struct HeapClassUse {
  uint64_t block_bytes = 0;  // the block size; 0 for large blocks, each in a page of its own
  uint64_t used_bytes = 0;   // includes blocks freed by other threads and not yet collected
  uint64_t free_bytes = 0;   // in pages of this class: usable for blocks of this class only
};
inline constexpr size_t kHeapClassCountMax = 80;

struct HeapWalk {
  size_t class_count = 0;
  HeapClassUse classes[kHeapClassCountMax];  // the classes with a page, by size; large blocks last
  // In free units of kHeapGranularityBytes. The sums do not cover the free parts of used units that
  // belong to no page.
  uint64_t free_bytes = 0;
  // The longest run of free units. One block can have this less 64 KiB, for mimalloc's header.
  uint64_t largest_free_bytes = 0;
};

// Threads: any. Cost: about a microsecond for each 4 MiB in use. Allocates nothing.
HeapWalk walk_heap() noexcept;

}  // namespace bedplate
