#include "alloc/heap_walk.h"

#include <algorithm>

#include "alloc/confined_heap.h"
#include "mimalloc.h"
#include "mimalloc-internal.h"

namespace bedplate {
namespace {

constexpr size_t kClassCount = MI_BIN_HUGE + 1;
static_assert(kClassCount <= kHeapClassCountMax);

// The records change during the walk: each is read once, and used only within its bounds.
class Walker {
 public:
  void walk_arena(uint32_t index) noexcept {
    const HeapArenaUse arena = heap_arena_use(index);
    const uint64_t unit_count = arena.bytes / kHeapGranularityBytes;
    uint64_t free_units = 0;
    for (uint64_t unit = 0; unit < unit_count;) {
      if (!heap_unit_is_used(index, unit)) {
        ++free_units;
        ++unit;
        continue;
      }
      end_free_run(&free_units);
      unit += walk_segment(arena.address + unit * kHeapGranularityBytes, unit_count - unit);
    }
    end_free_run(&free_units);
  }

  HeapWalk finish() noexcept {
    for (size_t bin = 1; bin < kClassCount; ++bin) {
      if (classes_[bin].used_bytes + classes_[bin].free_bytes == 0) continue;
      HeapClassUse& use = walk_.classes[walk_.class_count++];
      use = classes_[bin];
      if (bin < MI_BIN_HUGE) use.block_bytes = _mi_bin_size(static_cast<uint8_t>(bin));
    }
    return walk_;
  }

 private:
  void end_free_run(uint64_t* units) noexcept {
    const uint64_t bytes = *units * kHeapGranularityBytes;
    walk_.free_bytes += bytes;
    walk_.largest_free_bytes = std::max(walk_.largest_free_bytes, bytes);
    *units = 0;
  }

  // Returns the number of units of the segment at `address`, at most `units_left`.
  uint64_t walk_segment(const std::byte* address, uint64_t units_left) noexcept {
    const auto* segment = reinterpret_cast<const mi_segment_t*>(address);
    // A new segment has no cookie until it is complete.
    if (segment->cookie != _mi_ptr_cookie(segment)) return 1;
    const uint64_t bytes = segment->segment_slices * MI_SEGMENT_SLICE_SIZE;
    const uint64_t units = (bytes + kHeapGranularityBytes - 1) / kHeapGranularityBytes;
    if (units == 0 || units > units_left) return 1;
    if (segment->kind == MI_SEGMENT_HUGE) {
      classes_[MI_BIN_HUGE].used_bytes += bytes;
    } else {
      walk_pages(*segment);
    }
    return units;
  }

  void walk_pages(const mi_segment_t& segment) noexcept {
    const size_t end = std::min<size_t>(segment.slice_entries, MI_SLICES_PER_SEGMENT);
    size_t index = segment.segment_info_slices;
    while (index < end) {
      const mi_slice_t& slice = segment.slices[index];
      const size_t count = slice.slice_count;
      if (count == 0 || count > end - index) return;
      if (slice.xblock_size > 1) add_page(slice);
      index += count;
    }
  }

  void add_page(const mi_page_t& page) noexcept {
    const uint64_t block_bytes = page.xblock_size;
    const uint64_t used = uint64_t{page.used} * block_bytes;
    const uint64_t all = uint64_t{page.reserved} * block_bytes;
    HeapClassUse& use = classes_[_mi_bin(block_bytes)];
    use.used_bytes += std::min(used, all);
    use.free_bytes += all - std::min(used, all);
  }

  HeapWalk walk_;
  HeapClassUse classes_[kClassCount];
};

}  // namespace

HeapWalk walk_heap() noexcept {
  Walker walker;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    if (heap_arena_is_open(i)) walker.walk_arena(i);
  }
  return walker.finish();
}

}  // namespace bedplate
