// Describes the heap in the words of glibc's malloc: for mallinfo, malloc_stats and malloc_info.
//
// The figures are walk_heap()'s. The heap has no mapped blocks, no fast bins and no memory that can
// be trimmed: their figures are 0. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bedplate {

// The sums over all memory that is open to everybody: without segment 0 of an appliance after boot,
// and without the reserve.
struct HeapTotals {
  uint64_t bytes = 0;
  uint64_t used_bytes = 0;  // of blocks; the rest of `bytes` is free, in one way or another
  uint64_t free_piece_count = 0;
};
HeapTotals heap_totals() noexcept;

// As malloc_stats writes it. Returns `text`.
inline constexpr size_t kHeapStatisticsBytesMax = 512;
const char* format_heap_statistics(const HeapTotals& totals, char* text,
                                   size_t text_bytes) noexcept;

// As malloc_info writes it (XML): the free blocks by size, and the sums. Returns `text`.
inline constexpr size_t kHeapDescriptionBytesMax = 16384;
const char* describe_heap(char* text, size_t text_bytes) noexcept;

}  // namespace bedplate
