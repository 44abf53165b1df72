#include "pinned_pool/plan.h"

#include <algorithm>
#include <cinttypes>

#include "pinned_pool/layout.h"
#include "platform/cache_line.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Rounding up to pages of 1 GiB may cost at most this fraction (1/8) of a segment.
constexpr uint64_t kWastePart = 8;

Error does_not_fit(const PoolBudget& budget, const OwnerName& owner, uint64_t wanted_bytes,
                   uint64_t left_bytes, uint64_t needed_total_bytes) {
  return configuration_error_while("planning a pool of %s", format_bytes(budget.bytes).text)
      .set_answer("%s needs %" PRIu64 " bytes, %" PRIu64 " are left: short by %" PRIu64
                  " bytes (%s)",
                  owner.text, wanted_bytes, left_bytes, wanted_bytes - left_bytes,
                  format_bytes(wanted_bytes - left_bytes).text)
      .set_cure("set [pool] bytes to \"%s\" or more, or make its services smaller",
                format_bytes(needed_total_bytes).text);
}

// Returns true if `segment` may have `bytes` of 1 GiB pages, besides those already in `plan`.
bool has_1gib_pages(const PoolBudget& budget, const PoolPlan& plan, const SegmentPlan& segment,
                    uint64_t bytes) {
  if (!budget.free_1gib_pages) return false;
  const uint64_t planned_bytes = plan.bytes_with(PageSize::k1GiB, segment.node);
  return (planned_bytes + bytes) / kGiB <= budget.free_1gib_pages(segment.node);
}

// Gives 1 GiB pages to the services that want the largest pages and can have them. Rounding up
// takes unassigned bytes out of `left_bytes`; returns the rest.
uint64_t take_largest(const PoolBudget& budget, const std::vector<SegmentRequest>& requests,
                      uint64_t left_bytes, PoolPlan& plan) {
  for (size_t i = 0; i < requests.size(); ++i) {
    SegmentPlan& segment = plan.segments[2 + i];  // after boot and heap
    const uint64_t bytes = align_up(segment.bytes, kGiB);
    const uint64_t waste_bytes = bytes - segment.bytes;
    if (requests[i].placement.pages != PageWish::kLargest ||
        waste_bytes > std::min(segment.bytes / kWastePart, left_bytes) ||
        !has_1gib_pages(budget, plan, segment, bytes)) {
      continue;
    }
    segment.bytes = bytes;
    segment.page = PageSize::k1GiB;
    left_bytes -= waste_bytes;
  }
  return left_bytes;
}

// Gives the rest to the heap, in whole pages.
void grow_heap(const PoolBudget& budget, uint64_t left_bytes, PoolPlan& plan) {
  SegmentPlan& heap = plan.segments[1];
  const uint64_t floor_bytes = heap.bytes;
  const uint64_t all_bytes = floor_bytes + left_bytes;
  const uint64_t bytes = align_down(all_bytes, kGiB);
  heap.bytes = align_down(all_bytes, page_bytes(heap.page));
  if (budget.heap.pages == PageWish::kLargest && bytes >= floor_bytes &&
      all_bytes - bytes <= all_bytes / kWastePart && has_1gib_pages(budget, plan, heap, bytes)) {
    heap.bytes = bytes;
    heap.page = PageSize::k1GiB;
  }
}

Error too_many_segments(const PoolBudget& budget, const PoolPlan& plan) {
  return configuration_error_while("planning a pool of %s", format_bytes(budget.bytes).text)
      .set_answer("it needs %zu segments, and a pool has %u at most", plan.segments.size(),
                  kSegmentCountMax)
      .set_cure("configure fewer volumes, processes or groups: each takes a segment, or more");
}

Error too_many_regions(const PoolBudget& budget) {
  return configuration_error_while("planning a pool of %s", format_bytes(budget.bytes).text)
      .set_answer("its segments need more address space than the pool's range of %s has",
                  format_bytes(kPoolSpanBytes).text)
      .set_cure("make the pool or its services smaller");
}

}  // namespace

uint64_t sum_of_carves(const std::vector<CarvePlan>& carves) noexcept {
  uint64_t sum = 0;
  for (const CarvePlan& carve : carves) sum += carve.bytes;
  return sum;
}

bool PoolPlan::is_valid() const noexcept {
  if (segments.size() < 2 || !(segments[0].owner == OwnerName("boot")) ||
      !(segments[1].owner == OwnerName("heap"))) {
    return false;
  }
  const auto is_whole = [](const CarvePlan& carve) {
    return carve.bytes != 0 && carve.bytes % kCacheLineBytes == 0;
  };
  return std::all_of(segments.begin(), segments.end(), [&](const SegmentPlan& segment) {
    return segment.bytes != 0 && segment.bytes % page_bytes(segment.page) == 0 &&
           segment.carved_bytes() <= segment.bytes &&
           std::all_of(segment.carves.begin(), segment.carves.end(), is_whole);
  });
}

uint64_t PoolPlan::total_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const SegmentPlan& segment : segments) bytes += segment.bytes;
  return bytes;
}

uint64_t PoolPlan::bytes_for_devices() const noexcept {
  uint64_t bytes = 0;
  for (const SegmentPlan& segment : segments) bytes += segment.is_for_devices ? segment.bytes : 0;
  return bytes;
}

uint64_t PoolPlan::bytes_with(PageSize page, int node) const noexcept {
  uint64_t bytes = 0;
  for (const SegmentPlan& segment : segments) {
    const bool counts = segment.page == page && (node == kAnyNode || segment.node == node);
    bytes += counts ? segment.bytes : 0;
  }
  return bytes;
}

PageSize smallest_page(PageWish wish) noexcept {
  if (wish == PageWish::k4KiB) return PageSize::k4KiB;
  return wish == PageWish::k1GiB ? PageSize::k1GiB : PageSize::k2MiB;
}

Result<PoolPlan> make_pool_plan(const PoolBudget& budget,
                                const std::vector<SegmentRequest>& requests) {
  const uint64_t boot_bytes = align_up(budget.boot_bytes, page_bytes(budget.boot_page));
  PoolPlan plan;
  plan.segments.push_back({"boot", boot_bytes, budget.boot_page});
  plan.segments.push_back({"heap", 0, smallest_page(budget.heap.pages), {}, budget.heap.node});
  for (const SegmentRequest& request : requests) {
    const PageSize page = smallest_page(request.placement.pages);
    SegmentPlan& segment = plan.segments.emplace_back(SegmentPlan{
        request.owner, 0, page, request.carves, request.placement.node, request.is_for_devices});
    segment.bytes = align_up(segment.carved_bytes(), page_bytes(page));
  }
  if (plan.segments.size() > kSegmentCountMax) return too_many_segments(budget, plan);
  // Checks the heap's minimum last, so that the error names a service that does not fit.
  SegmentPlan& heap = plan.segments[1];
  const uint64_t heap_page = page_bytes(heap.page);
  const uint64_t heap_floor_bytes = align_up(std::max(budget.heap_min_bytes, heap_page), heap_page);
  const uint64_t needed_bytes = plan.total_bytes() + heap_floor_bytes;
  uint64_t left_bytes = budget.bytes;
  const auto take = [&](const OwnerName& owner, uint64_t bytes) -> Result<void> {
    if (bytes > left_bytes) {
      return does_not_fit(budget, owner, bytes, left_bytes,
                          align_up(needed_bytes, page_bytes(budget.unit)));
    }
    left_bytes -= bytes;
    return {};
  };
  for (const SegmentPlan& segment : plan.segments) BP_TRY(take(segment.owner, segment.bytes));
  BP_TRY(take(heap.owner, heap_floor_bytes));
  heap.bytes = heap_floor_bytes;
  left_bytes = take_largest(budget, requests, left_bytes, plan);
  grow_heap(budget, left_bytes, plan);
  uint64_t regions = 0;
  for (const SegmentPlan& segment : plan.segments) regions += regions_of(segment.bytes);
  if (regions > kRegionCountMax) return too_many_regions(budget);
  BP_ASSERT(plan.is_valid() && plan.total_bytes() <= budget.bytes);
  return plan;
}

}  // namespace bedplate
