#include "alloc/heap_report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "alloc/confined_heap.h"
#include "alloc/heap_walk.h"

namespace bedplate {
namespace {

HeapTotals totals_of(const HeapWalk& walk) noexcept {
  HeapTotals totals;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    if (heap_arena_is_open(i)) totals.bytes += heap_arena_use(i).bytes;
  }
  for (size_t i = 0; i < walk.class_count; ++i) {
    const HeapClassUse& use = walk.classes[i];
    totals.used_bytes += use.used_bytes;
    if (use.block_bytes > 0) totals.free_piece_count += use.free_bytes / use.block_bytes;
  }
  totals.free_piece_count += walk.free_bytes / kHeapGranularityBytes;
  // Other threads change the heap between the walk and the sum, so used_bytes could exceed bytes.
  totals.used_bytes = std::min(totals.used_bytes, totals.bytes);
  return totals;
}

// Appends to a text, and truncates it at its capacity.
class Writer {
 public:
  Writer(char* text, size_t text_bytes) noexcept : text_(text), bytes_(text_bytes) {}

  template <typename... Values>
  void add(const char* format, Values... values) noexcept {
    const int length = std::snprintf(text_ + used_, bytes_ - used_, format, values...);
    used_ = std::min(used_ + static_cast<size_t>(std::max(length, 0)), bytes_ - 1);
  }

 private:
  char* text_;
  size_t bytes_;
  size_t used_ = 0;
};

}  // namespace

HeapTotals heap_totals() noexcept { return totals_of(walk_heap()); }

const char* format_heap_statistics(const HeapTotals& totals, char* text,
                                   size_t text_bytes) noexcept {
  Writer writer(text, text_bytes);
  for (const char* title : {"Arena 0:\n", "Total (incl. mmap):\n"}) {
    writer.add("%ssystem bytes     = %10" PRIu64 "\nin use bytes     = %10" PRIu64 "\n", title,
               totals.bytes, totals.used_bytes);
  }
  writer.add("max mmap regions = %10d\nmax mmap bytes   = %10d\n", 0, 0);
  return text;
}

const char* describe_heap(char* text, size_t text_bytes) noexcept {
  const HeapWalk walk = walk_heap();
  const HeapTotals totals = totals_of(walk);
  Writer writer(text, text_bytes);
  writer.add("%s", "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n");
  for (size_t i = 0; i < walk.class_count; ++i) {
    const HeapClassUse& use = walk.classes[i];
    if (use.block_bytes == 0 || use.free_bytes == 0) continue;
    writer.add("  <size from=\"%" PRIu64 "\" to=\"%" PRIu64 "\" total=\"%" PRIu64
               "\" count=\"%" PRIu64 "\"/>\n",
               use.block_bytes, use.block_bytes, use.free_bytes, use.free_bytes / use.block_bytes);
  }
  writer.add("%s", "</sizes>\n");
  // Writes the figures of the one heap, then the same figures as the total of all heaps.
  for (const char* end : {"</heap>\n", "</malloc>\n"}) {
    writer.add(
        "<total type=\"fast\" count=\"0\" size=\"0\"/>\n<total type=\"rest\" count=\"%" PRIu64
        "\" size=\"%" PRIu64 "\"/>\n<system type=\"current\" size=\"%" PRIu64
        "\"/>\n<system type=\"max\" size=\"%" PRIu64 "\"/>\n<aspace type=\"total\" "
        "size=\"%" PRIu64 "\"/>\n<aspace type=\"mprotect\" size=\"%" PRIu64 "\"/>\n%s",
        totals.free_piece_count, totals.bytes - totals.used_bytes, totals.bytes, totals.bytes,
        totals.bytes, totals.bytes, end);
  }
  return text;
}

}  // namespace bedplate
