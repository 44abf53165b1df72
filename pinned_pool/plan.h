// The plan: every byte of the pool with its owner, before anything is taken.
//
// A plan is made from the configuration alone and is what `bedplate plan` prints. Boot takes
// exactly what it says: PinnedPool::reserve creates its segments, and services get the carves they
// planned, by name. Made before the seal, so it may use the heap.
#pragma once

#include <string_view>
#include <vector>

#include "pinned_pool/owner_name.h"
#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

struct CarvePlan {
  OwnerName owner;
  uint64_t bytes = 0;  // a multiple of the cache line
};

struct SegmentPlan {
  OwnerName owner;
  uint64_t bytes = 0;  // a multiple of the page
  PageSize page = PageSize::k4KiB;
  std::vector<CarvePlan> carves;
};

struct PoolPlan {
  std::vector<SegmentPlan> segments;  // the first is segment 0, owner `boot`

  uint64_t total_bytes() const noexcept;
  uint64_t bytes_with(PageSize page) const noexcept;
};

// What a service asks for: one segment, cut into carves.
struct SegmentRequest {
  OwnerName owner;
  std::vector<CarvePlan> carves;
};

struct PoolBudget {
  uint64_t bytes = 0;  // the whole pool, segment 0 included
  PageSize page = PageSize::k2MiB;
  uint64_t boot_bytes = 0;  // segment 0
  uint64_t heap_min_bytes = 0;
};

// Gives each request a segment, rounded up to the page, in order; what is left is the heap, in
// whole pages. A rest smaller than a page is not taken, so total_bytes() may be that much less
// than the budget.
// Returns the plan: boot, heap, then the requests.
// Errors (kConfiguration): the first owner that does not fit, by how many bytes, and the pool size
// that would do.
Result<PoolPlan> make_pool_plan(const PoolBudget& budget,
                                const std::vector<SegmentRequest>& requests);

}  // namespace bedplate
