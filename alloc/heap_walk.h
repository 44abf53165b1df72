// The heap's contents: used and free bytes of each size class, and the largest possible allocation.
// A snapshot: mimalloc's records are read while other threads allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

struct HeapClassUse {
  uint64_t block_bytes = 0;  // the block size; 0: large blocks, each in a page of its own size
  uint64_t used_bytes = 0;   // includes blocks freed by other threads and not yet collected
  uint64_t free_bytes = 0;   // in pages of this class: usable for blocks of this class only
};
inline constexpr size_t kHeapClassCountMax = 80;

struct HeapWalk {
  size_t class_count = 0;
  HeapClassUse classes[kHeapClassCountMax];  // the classes with a page, by size; large blocks last
  uint64_t free_bytes = 0;                   // not in use, in whole units of the heap
  uint64_t largest_free_bytes = 0;           // contiguous: the most that one request can get of it
};

// Threads: any. Cost: about a microsecond for each 4 MiB in use. Allocates nothing.
HeapWalk walk_heap() noexcept;

}  // namespace bedplate
