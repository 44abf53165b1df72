// The heap's contents: used and free bytes of each size class, and the largest block that could be
// allocated. They are read from mimalloc's records while others allocate: a snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

struct HeapClassUse {
  uint64_t block_bytes = 0;  // of its blocks; 0: large blocks, each in a place of its own size
  uint64_t used_bytes = 0;   // also what other threads freed and its thread has not collected yet
  uint64_t free_bytes = 0;   // in pages of this class: only blocks of this class can be had there
};
inline constexpr size_t kHeapClassCountMax = 80;

struct HeapWalk {
  size_t class_count = 0;
  HeapClassUse classes[kHeapClassCountMax];  // those with a page, by size; large blocks last
  uint64_t free_bytes = 0;                   // not taken by anybody, in units of the heap
  uint64_t largest_free_bytes = 0;           // of one piece: what one request can have of it
};

// Threads: any. Cost: about a microsecond for each 4 MiB in use. Allocates nothing.
HeapWalk walk_heap() noexcept;

}  // namespace bedplate
