// Describes the heap in the terms of glibc's malloc: for mallinfo, malloc_stats and malloc_info.
//
// The figures come from walk_heap(). The heap has no mapped blocks, no fast bins and no memory that
// can be trimmed: these figures are 0. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bedplate {

// The sums over all arenas that serve all owners: without segment 0 of an appliance after boot, and
// without the reserves.
struct HeapTotals {
  uint64_t bytes = 0;
  uint64_t used_bytes = 0;        // in blocks in use; the rest of `bytes` counts as free
  uint64_t free_piece_count = 0;  // free blocks in pages, and free units of 4 MiB
};
// A snapshot. Threads: any.
HeapTotals heap_totals() noexcept;

// Writes the text of malloc_stats, truncated at `text_bytes` (at least 1). Returns `text`.
inline constexpr size_t kHeapStatisticsBytesMax = 512;
const char* format_heap_statistics(const HeapTotals& totals, char* text,
                                   size_t text_bytes) noexcept;

// Writes the XML of malloc_info: the free blocks by size, and the sums. Truncates and returns
// `text` as above.
inline constexpr size_t kHeapDescriptionBytesMax = 16384;
const char* describe_heap(char* text, size_t text_bytes) noexcept;

}  // namespace bedplate
