#include "pinned_pool/plan.h"

#include <algorithm>
#include <cinttypes>

#include "pinned_pool/layout.h"
#include "platform/cache_line.h"
#include "platform/units.h"

namespace bedplate {
namespace {

Error does_not_fit(const PoolBudget& budget, const OwnerName& owner, uint64_t wanted_bytes,
                   uint64_t left_bytes, uint64_t needed_total_bytes) {
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("planning a pool of %s", format_bytes(budget.bytes).text);
  error.set_answer("%s needs %" PRIu64 " bytes, %" PRIu64 " are left: short by %" PRIu64
                   " bytes (%s)",
                   owner.text, wanted_bytes, left_bytes, wanted_bytes - left_bytes,
                   format_bytes(wanted_bytes - left_bytes).text);
  error.set_cure("set [pool] bytes to \"%s\" or more, or make its services smaller",
                 format_bytes(needed_total_bytes).text);
  return error;
}

uint64_t sum_of_carves(const SegmentRequest& request) {
  uint64_t bytes = 0;
  for (const CarvePlan& carve : request.carves) {
    BP_ASSERT(carve.bytes % kCacheLineBytes == 0);
    bytes += carve.bytes;
  }
  return bytes;
}

Error too_many_regions(const PoolBudget& budget) {
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("planning a pool of %s", format_bytes(budget.bytes).text);
  error.set_answer("its segments take more address space than the pool's range of %s has",
                   format_bytes(kPoolSpanBytes).text);
  error.set_cure("make the pool or its services smaller");
  return error;
}

}  // namespace

uint64_t PoolPlan::total_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const SegmentPlan& segment : segments) bytes += segment.bytes;
  return bytes;
}

uint64_t PoolPlan::bytes_with(PageSize page) const noexcept {
  uint64_t bytes = 0;
  for (const SegmentPlan& segment : segments) bytes += segment.page == page ? segment.bytes : 0;
  return bytes;
}

Result<PoolPlan> make_pool_plan(const PoolBudget& budget,
                                const std::vector<SegmentRequest>& requests) {
  const uint64_t page = page_bytes(budget.page);
  const uint64_t boot_bytes = align_up(budget.boot_bytes, page_bytes(PageSize::k4KiB));
  PoolPlan plan;
  plan.segments.push_back({"boot", boot_bytes, PageSize::k4KiB, {}});
  plan.segments.push_back({"heap", 0, budget.page, {}});
  for (const SegmentRequest& request : requests) {
    plan.segments.push_back(
        {request.owner, align_up(sum_of_carves(request), page), budget.page, request.carves});
  }
  // The heap's floor is planned last, so that a service that does not fit is the one named.
  SegmentPlan& heap = plan.segments[1];
  const uint64_t heap_floor_bytes = align_up(std::max(budget.heap_min_bytes, page), page);
  const uint64_t needed_bytes = plan.total_bytes() + heap_floor_bytes;
  uint64_t left_bytes = budget.bytes;
  uint64_t regions = 0;
  const auto take = [&](const OwnerName& owner, uint64_t bytes) -> Result<void> {
    if (bytes > left_bytes) {
      return does_not_fit(budget, owner, bytes, left_bytes, align_up(needed_bytes, page));
    }
    left_bytes -= bytes;
    regions += regions_of(bytes);
    return {};
  };
  for (const SegmentPlan& segment : plan.segments) BP_TRY(take(segment.owner, segment.bytes));
  const uint64_t heap_bytes = align_down(left_bytes, page);
  BP_TRY(take(heap.owner, std::max(heap_bytes, heap_floor_bytes)));
  heap.bytes = heap_bytes;
  if (regions > kRegionCountMax || plan.segments.size() > kSegmentCountMax) {
    return too_many_regions(budget);
  }
  return plan;
}

}  // namespace bedplate
