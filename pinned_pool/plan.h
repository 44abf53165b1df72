// The plan: every byte of the pool with its owner, before anything is taken.
//
// A plan is made from the configuration, and from the free pages if the configuration leaves the
// page size open; `bedplate plan` prints the plan. Boot takes exactly the planned memory:
// PinnedPool::reserve creates the planned segments, and services get the carves they planned, by
// name. A plan is made before the seal, so it may use the heap.
//
// Planning takes no memory, and asks the system nothing but free_1gib_pages(): the same input and
// answer make the same plan on any machine. Ownership: values, which point to nothing of the
// caller's. Threads: one for each plan. Sizes are bytes; nodes are the kernel's numbers, or
// kAnyNode.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "pinned_pool/owner_name.h"
#include "platform/hugepage.h"
#include "platform/numa.h"
#include "platform/result.h"

namespace bedplate {

// A part of a segment, contiguous, which its owner gets by name.
struct CarvePlan {
  OwnerName owner;
  uint64_t bytes = 0;  // a multiple of the cache line, not 0
};

// The bytes of all carves: they lie one behind the other without gaps.
uint64_t sum_of_carves(const std::vector<CarvePlan>& carves) noexcept;

// A planned segment: one memfd, one page size, one node.
struct SegmentPlan {
  OwnerName owner;
  uint64_t bytes = 0;  // a multiple of the page
  PageSize page = PageSize::k4KiB;
  std::vector<CarvePlan> carves = {};  // from its front, in this order; the rest is the owner's
  int node = kAnyNode;
  bool is_for_devices = true;  // as in Segment

  uint64_t carved_bytes() const noexcept { return sum_of_carves(carves); }
};

// Invariants, which is_valid() checks: 1. The first segment's owner is `boot` (it is segment 0),
// the second's is `heap`. 2. Each has whole pages, at least one, and its carves, of whole cache
// lines, fit into it.
struct PoolPlan {
  // In the order of creation, which is the order of their numbers.
  std::vector<SegmentPlan> segments;

  bool is_valid() const noexcept;
  // The bytes of all segments, which the pool takes from the machine.
  uint64_t total_bytes() const noexcept;
  // The bytes of the segments that are registered with devices.
  uint64_t bytes_for_devices() const noexcept;
  // The bytes of the segments with this page size; with a node, only of those on it.
  uint64_t bytes_with(PageSize page, int node = kAnyNode) const noexcept;
};

// The wanted page size of a segment: exactly this size, or the largest hugepage that fits.
enum class PageWish { k4KiB, k2MiB, k1GiB, kLargest };

// The smallest page that fulfils `wish`: 4 KiB only for k4KiB.
PageSize smallest_page(PageWish wish) noexcept;

// A segment's wishes: its pages and its node.
struct Placement {
  PageWish pages = PageWish::k2MiB;
  int node = kAnyNode;
  bool is_own_wish = false;  // the configuration names this segment's pages
};

// A service's request: one segment, cut into carves.
struct SegmentRequest {
  OwnerName owner;
  std::vector<CarvePlan> carves = {};
  Placement placement = {};
  bool is_for_devices = true;  // as in Segment

  uint64_t carved_bytes() const noexcept { return sum_of_carves(carves); }
};

// The memory to be planned, and the runtime's own needs.
struct PoolBudget {
  uint64_t bytes = 0;               // the whole pool, segment 0 included
  PageSize unit = PageSize::k2MiB;  // the errors propose `bytes` as a multiple of this
  uint64_t boot_bytes = 0;          // of segment 0, before it is rounded up to its page
  PageSize boot_page = PageSize::k4KiB;
  uint64_t heap_min_bytes = 0;
  Placement heap = {};
  // Returns the free pages of 1 GiB on a node, or on all with kAnyNode. Called for kLargest only,
  // on the caller's thread, perhaps more than once. Empty: none are free.
  std::function<uint64_t(int node)> free_1gib_pages = {};
};

// Gives each request a segment, rounded up to the page, in order; the heap gets the rest, in whole
// pages. A rest smaller than a page is not taken, so total_bytes() may be that much less than the
// budget. kLargest is 1 GiB if enough such pages are free on the node, rounding costs an eighth of
// the segment at most, and everything else still fits; else 2 MiB. Requests choose in order, the
// heap last.
// Requires: each request has a carve; carves are as CarvePlan describes, so the caller has rounded
// their sizes up.
// Returns the plan: boot, heap, then the requests. It is_valid().
// Errors (kConfiguration): an owner does not fit (the error names the first one, the missing bytes
// and a pool size that suffices); or the plan needs more segments or address space than a pool has.
Result<PoolPlan> make_pool_plan(const PoolBudget& budget,
                                const std::vector<SegmentRequest>& requests);

}  // namespace bedplate
