#include "pinned_pool/plan.h"

#include <random>
#include <string>

#include "pinned_pool/layout.h"
#include "platform/cache_line.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::Seed;

namespace {

PageWish only(PageSize page) {
  if (page == PageSize::k4KiB) return PageWish::k4KiB;
  return page == PageSize::k2MiB ? PageWish::k2MiB : PageWish::k1GiB;
}

PoolBudget budget_of(uint64_t bytes, PageSize page = PageSize::k2MiB) {
  PoolBudget budget;
  budget.bytes = bytes;
  budget.unit = page;
  budget.heap.pages = only(page);
  budget.boot_bytes = 16 * kMiB;
  budget.heap_min_bytes = 32 * kMiB;
  return budget;
}

SegmentRequest request_of(const OwnerName& owner, std::vector<CarvePlan> carves,
                          Placement placement = {}) {
  return {owner, std::move(carves), placement};
}

void check_refused(const PoolBudget& budget, const std::vector<SegmentRequest>& requests,
                   const char* message) {
  const Result<PoolPlan> plan = make_pool_plan(budget, requests);
  CHECK_TEXT(!plan.ok(), "the plan was accepted");
  CHECK(plan.error().kind == ErrorKind::kConfiguration);
  char text[1024];
  STRCMP_EQUAL(message, format_error(plan.error(), text, sizeof text));
}

}  // namespace

TEST_GROUP(PoolPlan){};

TEST(PoolPlan, WithoutServicesIsBootAndHeap) {
  const PoolPlan plan = make_pool_plan(budget_of(256 * kMiB), {}).take();
  LONGS_EQUAL(2, plan.segments.size());
  STRCMP_EQUAL("boot", plan.segments[0].owner.text);
  CHECK(plan.segments[0].bytes == 16 * kMiB);
  CHECK(plan.segments[0].page == PageSize::k4KiB);
  STRCMP_EQUAL("heap", plan.segments[1].owner.text);
  CHECK(plan.segments[1].bytes == 240 * kMiB);
  CHECK(plan.segments[1].page == PageSize::k2MiB);
  CHECK(plan.total_bytes() == 256 * kMiB);
}

TEST(PoolPlan, ServicesGetTheirSegmentsInOrderAndTheHeapTheRest) {
  const std::vector<SegmentRequest> requests = {
      request_of("volume:ram0", {{"volume:ram0", 64 * kMiB}}),
      request_of("connections", {{"first", 64}, {"second", 4096}}),
  };
  const PoolPlan plan = make_pool_plan(budget_of(256 * kMiB), requests).take();
  LONGS_EQUAL(4, plan.segments.size());
  STRCMP_EQUAL("volume:ram0", plan.segments[2].owner.text);
  CHECK(plan.segments[2].bytes == 64 * kMiB);
  STRCMP_EQUAL("connections", plan.segments[3].owner.text);
  CHECK(plan.segments[3].bytes == 2 * kMiB);  // rounded up to the page
  CHECK(plan.segments[3].page == PageSize::k2MiB);
  LONGS_EQUAL(2, plan.segments[3].carves.size());
  STRCMP_EQUAL("second", plan.segments[3].carves[1].owner.text);
  CHECK(plan.segments[3].carves[1].bytes == 4096);
  CHECK(plan.segments[1].bytes == (256 - 16 - 64 - 2) * kMiB);
  CHECK(plan.total_bytes() == 256 * kMiB);
}

TEST(PoolPlan, BytesAreToldByPageSize) {
  const PoolPlan plan = make_pool_plan(budget_of(256 * kMiB), {}).take();
  CHECK(plan.bytes_with(PageSize::k4KiB) == 16 * kMiB);
  CHECK(plan.bytes_with(PageSize::k2MiB) == 240 * kMiB);
  CHECK(plan.bytes_with(PageSize::k1GiB) == 0);
  const PoolPlan small = make_pool_plan(budget_of(256 * kMiB, PageSize::k4KiB), {}).take();
  CHECK(small.bytes_with(PageSize::k4KiB) == 256 * kMiB);
}

TEST(PoolPlan, RestSmallerThanAPageIsNotTaken) {
  const PoolPlan plan = make_pool_plan(budget_of(257 * kMiB), {}).take();
  CHECK(plan.total_bytes() == 256 * kMiB);
}

TEST(PoolPlan, WhatJustFitsIsAccepted) {
  const std::vector<SegmentRequest> requests = {request_of("volume:ram0", {{"v", 208 * kMiB}})};
  const PoolPlan plan = make_pool_plan(budget_of(256 * kMiB), requests).take();
  CHECK(plan.segments[1].bytes == 32 * kMiB);
}

TEST(PoolPlan, FirstServiceThatDoesNotFitIsNamedWithItsBytes) {
  check_refused(budget_of(256 * kMiB),
                {request_of("volume:ram0", {{"v", 64 * kMiB}}),
                 request_of("volume:ram1", {{"v", 200 * kMiB}}),
                 request_of("volume:ram2", {{"v", 200 * kMiB}})},
                "planning a pool of 256 MiB: volume:ram1 needs 209715200 bytes, 184549376 are "
                "left: short by 25165824 bytes (24 MiB); set [pool] bytes to \"512 MiB\" or "
                "more, or make its services smaller");
}

TEST(PoolPlan, ThePoolSizeItAsksForIsAcceptedAndNothingLess) {
  const std::vector<SegmentRequest> requests = {request_of("volume:ram0", {{"v", 300 * kMiB}})};
  check_refused(budget_of(256 * kMiB), requests,
                "planning a pool of 256 MiB: volume:ram0 needs 314572800 bytes, 251658240 are "
                "left: short by 62914560 bytes (60 MiB); set [pool] bytes to \"348 MiB\" or "
                "more, or make its services smaller");
  CHECK(make_pool_plan(budget_of(348 * kMiB), requests).ok());
  CHECK_FALSE(make_pool_plan(budget_of(346 * kMiB), requests).ok());
}

TEST(PoolPlan, HeapBelowItsFloorIsRefusedByName) {
  check_refused(budget_of(256 * kMiB), {request_of("volume:ram0", {{"v", 210 * kMiB}})},
                "planning a pool of 256 MiB: heap needs 33554432 bytes, 31457280 are left: short "
                "by 2097152 bytes (2 MiB); set [pool] bytes to \"258 MiB\" or more, or make its "
                "services smaller");
}

TEST(PoolPlan, HeapHasAPageEvenWithoutAFloor) {
  PoolBudget budget = budget_of(16 * kMiB);
  budget.heap_min_bytes = 0;
  check_refused(budget, {},
                "planning a pool of 16 MiB: heap needs 2097152 bytes, 0 are left: short by "
                "2097152 bytes (2 MiB); set [pool] bytes to \"18 MiB\" or more, or make its "
                "services smaller");
}

TEST(PoolPlan, PoolSmallerThanSegmentZeroIsRefusedByName) {
  check_refused(budget_of(8 * kMiB), {},
                "planning a pool of 8 MiB: boot needs 16777216 bytes, 8388608 are left: short by "
                "8388608 bytes (8 MiB); set [pool] bytes to \"48 MiB\" or more, or make its "
                "services smaller");
}

TEST(PoolPlan, PagesOfOneGiBRoundUpToThem) {
  const std::vector<SegmentRequest> requests = {
      request_of("volume:ram0", {{"v", 64 * kMiB}}, {PageWish::k1GiB})};
  const PoolPlan plan =
      make_pool_plan(budget_of(2 * kGiB + 16 * kMiB, PageSize::k1GiB), requests).take();
  CHECK(plan.segments[1].bytes == kGiB);
  CHECK(plan.segments[2].bytes == kGiB);
  check_refused(budget_of(2 * kGiB, PageSize::k1GiB), requests,
                "planning a pool of 2 GiB: heap needs 1073741824 bytes, 1056964608 are left: short "
                "by 16777216 bytes (16 MiB); set [pool] bytes to \"3 GiB\" or more, or make its "
                "services smaller");
}

TEST(PoolPlan, EachSegmentHasThePageAndTheNodeThatItWasGiven) {
  PoolBudget budget = budget_of(4 * kGiB);
  budget.heap = {PageWish::k1GiB, 1};
  const PoolPlan plan =
      make_pool_plan(budget, {request_of("two", {{"v", 5 * kMiB}}, {PageWish::k2MiB, 0}),
                              request_of("four", {{"v", 64}}, {PageWish::k4KiB, 3})})
          .take();
  CHECK(plan.segments[0].node == kAnyNode);
  CHECK(plan.segments[1].page == PageSize::k1GiB && plan.segments[1].bytes == 3 * kGiB);
  LONGS_EQUAL(1, plan.segments[1].node);
  CHECK(plan.segments[2].page == PageSize::k2MiB && plan.segments[2].bytes == 6 * kMiB);
  LONGS_EQUAL(0, plan.segments[2].node);
  CHECK(plan.segments[3].page == PageSize::k4KiB && plan.segments[3].bytes == 4 * kKiB);
  LONGS_EQUAL(3, plan.segments[3].node);
  CHECK(plan.bytes_with(PageSize::k1GiB, 1) == 3 * kGiB);
  CHECK(plan.bytes_with(PageSize::k1GiB, 0) == 0);
  CHECK(plan.bytes_with(PageSize::k4KiB) == 16 * kMiB + 4 * kKiB);
}

// ---- The largest page ----

namespace {

const Placement kLargestOnNode0 = {PageWish::kLargest, 0};
const Placement kLargestOnNode1 = {PageWish::kLargest, 1};

// A budget of `bytes`. The heap wants the largest page, and each node has `free_count` free pages
// of 1 GiB.
PoolBudget largest_budget(uint64_t bytes, uint64_t free_count) {
  PoolBudget budget = budget_of(bytes);
  budget.heap = kLargestOnNode0;
  budget.free_1gib_pages = [free_count](int) { return free_count; };
  return budget;
}

// The page sizes of all segments except segment 0, such as "1 GiB, 2 MiB".
std::string pages_of(const PoolBudget& budget, const std::vector<SegmentRequest>& requests) {
  const PoolPlan plan = make_pool_plan(budget, requests).take();
  CHECK(plan.total_bytes() <= budget.bytes);
  std::string text;
  for (size_t i = 1; i < plan.segments.size(); ++i) {
    const uint64_t page = page_bytes(plan.segments[i].page);
    LONGS_EQUAL(0, plan.segments[i].bytes % page);
    text += (text.empty() ? "" : ", ") + std::string(format_bytes(page).text);
  }
  return text;
}

}  // namespace

TEST(PoolPlan, LargestIsOneGiBWhereSoManyAreFree) {
  const std::vector<SegmentRequest> requests = {
      request_of("first", {{"v", 2 * kGiB}}, kLargestOnNode0),
      request_of("second", {{"v", 2 * kGiB}}, kLargestOnNode0)};
  STRCMP_EQUAL("1 GiB, 1 GiB, 1 GiB", pages_of(largest_budget(13 * kGiB, 12), requests).c_str());
  STRCMP_EQUAL("2 MiB, 1 GiB, 1 GiB", pages_of(largest_budget(13 * kGiB, 11), requests).c_str());
  STRCMP_EQUAL("2 MiB, 1 GiB, 2 MiB", pages_of(largest_budget(13 * kGiB, 3), requests).c_str());
  STRCMP_EQUAL("2 MiB, 2 MiB, 2 MiB", pages_of(largest_budget(13 * kGiB, 1), requests).c_str());
}

TEST(PoolPlan, LargestCountsThePagesOfEachNode) {
  PoolBudget budget = largest_budget(6 * kGiB, 0);
  budget.free_1gib_pages = [](int node) { return node == 1 ? 2UL : 1UL; };
  const std::vector<SegmentRequest> requests = {
      request_of("first", {{"v", kGiB}}, kLargestOnNode0),
      request_of("second", {{"v", 2 * kGiB}}, kLargestOnNode1),
      request_of("third", {{"v", kGiB}}, kLargestOnNode0)};
  STRCMP_EQUAL("2 MiB, 1 GiB, 1 GiB, 2 MiB", pages_of(budget, requests).c_str());
}

TEST(PoolPlan, LargestLeavesThePagesThatAreAskedForByName) {
  const std::vector<SegmentRequest> requests = {
      request_of("first", {{"v", kGiB}}, kLargestOnNode0),
      request_of("second", {{"v", 2 * kGiB}}, {PageWish::k1GiB, 0})};
  STRCMP_EQUAL("2 MiB, 2 MiB, 1 GiB", pages_of(largest_budget(5 * kGiB, 2), requests).c_str());
}

TEST(PoolPlan, LargestWastesAnEighthAtMost) {
  const auto pages = [](uint64_t bytes) {
    return pages_of(largest_budget(32 * kGiB, 8),
                    {request_of("v", {{"v", bytes}}, kLargestOnNode0)});
  };
  STRCMP_EQUAL("2 MiB, 2 MiB", pages(64 * kMiB).c_str());
  STRCMP_EQUAL("2 MiB, 1 GiB", pages(8 * kGiB).c_str());
  STRCMP_EQUAL("2 MiB, 1 GiB", pages(912 * kMiB).c_str());
  STRCMP_EQUAL("2 MiB, 2 MiB", pages(910 * kMiB).c_str());
  // The heap's waste is the memory that it leaves unused: 1008 MiB of nearly 8 GiB, then of nearly
  // 7 GiB.
  STRCMP_EQUAL("1 GiB", pages_of(largest_budget(8 * kGiB, 99), {}).c_str());
  STRCMP_EQUAL("2 MiB", pages_of(largest_budget(7 * kGiB, 99), {}).c_str());
}

// boot takes 16 MiB, and the heap at least 32 MiB. A page of 1 GiB for `v` would waste 96 MiB.
TEST(PoolPlan, LargestNeverMakesAPoolTooSmall) {
  const auto pages = [](uint64_t bytes) {
    return pages_of(largest_budget(bytes, 8),
                    {request_of("v", {{"v", kGiB - 96 * kMiB}}, kLargestOnNode0)});
  };
  STRCMP_EQUAL("2 MiB, 1 GiB", pages(kGiB + 48 * kMiB).c_str());
  STRCMP_EQUAL("2 MiB, 2 MiB", pages(kGiB + 46 * kMiB).c_str());
}

TEST(PoolPlan, LargestIsNeverASmallPage) {
  CHECK(smallest_page(PageWish::kLargest) == PageSize::k2MiB);
  PoolBudget budget = largest_budget(256 * kMiB, 0);
  budget.free_1gib_pages = {};
  const SegmentRequest request = request_of("v", {{"v", 64}}, kLargestOnNode0);
  STRCMP_EQUAL("2 MiB, 2 MiB", pages_of(budget, {request}).c_str());
}

TEST(PoolPlan, MoreSegmentsThanThePoolHasAreRefused) {
  std::vector<SegmentRequest> requests(kSegmentCountMax - 2, request_of("one", {{"c", 64}}));
  CHECK(make_pool_plan(budget_of(kGiB), requests).ok());
  requests.push_back(requests[0]);
  check_refused(budget_of(kGiB), requests,
                "planning a pool of 1 GiB: it needs 129 segments, and a pool has 128 at most; "
                "configure fewer volumes, processes or groups: each takes a segment, or more");
}

TEST(PoolPlan, MoreAddressSpaceThanThePoolHasIsRefused) {
  // Segment 0 takes a whole region.
  CHECK(make_pool_plan(budget_of(kPoolSpanBytes - kGiB + 16 * kMiB), {}).ok());
  const std::string message = std::string("planning a pool of 1 TiB: its segments need more ") +
                              "address space than the pool's range of " +
                              format_bytes(kPoolSpanBytes).text +
                              " has; make the pool or its services smaller";
  check_refused(budget_of(kTiB), {}, message.c_str());
  CHECK_FALSE(make_pool_plan(budget_of(kPoolSpanBytes - kGiB + 18 * kMiB), {}).ok());
}

TEST(PoolPlan, IsNoneWithoutBootAndHeapOrWithCarvesThatDoNotFit) {
  const PoolPlan good =
      make_pool_plan(budget_of(256 * kMiB), {request_of("a", {{"a", 128}})}).take();
  CHECK(good.is_valid());
  CHECK_FALSE(PoolPlan{}.is_valid());
  PoolPlan bad = good;
  bad.segments[0].owner = "other";
  CHECK_FALSE(bad.is_valid());
  bad = good;
  bad.segments[1].owner = "other";
  CHECK_FALSE(bad.is_valid());
  bad = good;
  bad.segments[2].bytes -= 64;
  CHECK_FALSE(bad.is_valid());
  bad = good;
  bad.segments[2].bytes = 0;
  bad.segments[2].carves.clear();
  CHECK_FALSE(bad.is_valid());
  bad = good;
  bad.segments[2].carves[0].bytes = bad.segments[2].bytes + 64;
  CHECK_FALSE(bad.is_valid());
  bad = good;
  bad.segments[2].carves[0].bytes = 65;
  CHECK_FALSE(bad.is_valid());
}

TEST(PoolPlan, CarveThatIsNoWholeCacheLinesIsAProgrammingError) {
  const std::vector<SegmentRequest> requests = {request_of("odd", {{"odd", 65}})};
  BP_CHECK_DIES("assertion failed: plan.is_valid()",
                (void)make_pool_plan(budget_of(256 * kMiB), requests));
}

// The model adds up the owners' bytes until the budget is exceeded.
TEST(PoolPlan, ArithmeticAgreesWithASimpleModel) {
  const Seed seed;
  std::mt19937_64 random(seed.value());
  for (int round = 0; round < 2'000; ++round) {
    const PageSize page = random() % 2 == 0 ? PageSize::k4KiB : PageSize::k2MiB;
    PoolBudget budget = budget_of((1 + random() % 512) * page_bytes(page), page);
    budget.boot_bytes = (1 + random() % 4) * 4 * kMiB;
    budget.heap_min_bytes = random() % (64 * kMiB);
    std::vector<SegmentRequest> requests(random() % 5);
    uint64_t needed_bytes = budget.boot_bytes;
    std::string refused_owner = needed_bytes > budget.bytes ? "boot" : "";
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].owner = OwnerName("service", std::to_string(i));
      requests[i].placement.pages = only(page);
      uint64_t carved_bytes = 0;
      for (uint64_t carves = 1 + random() % 3; carves > 0; --carves) {
        const uint64_t bytes = (1 + random() % 100'000) * kCacheLineBytes;
        requests[i].carves.push_back({"c", bytes});
        carved_bytes += bytes;
      }
      const uint64_t page_count = carved_bytes / page_bytes(page);
      const bool is_whole = carved_bytes % page_bytes(page) == 0;
      needed_bytes += (is_whole ? page_count : page_count + 1) * page_bytes(page);
      if (refused_owner.empty() && needed_bytes > budget.bytes) {
        refused_owner = requests[i].owner.text;
      }
    }
    uint64_t floor_bytes = page_bytes(page);
    while (floor_bytes < budget.heap_min_bytes) floor_bytes += page_bytes(page);
    if (refused_owner.empty() && needed_bytes + floor_bytes > budget.bytes) refused_owner = "heap";

    Result<PoolPlan> result = make_pool_plan(budget, requests);
    CHECK_TEXT(result.ok() == refused_owner.empty(), seed.text());
    if (!result.ok()) {
      const std::string answer = result.error().answer;
      CHECK_TEXT(answer.starts_with(refused_owner + " needs "), seed.text());
      continue;
    }
    const PoolPlan& plan = result.value();
    CHECK_TEXT(plan.total_bytes() <= budget.bytes, seed.text());
    CHECK_TEXT(budget.bytes - plan.total_bytes() < page_bytes(page), seed.text());
    CHECK_TEXT(plan.segments[1].bytes >= floor_bytes, seed.text());
    CHECK_TEXT(plan.total_bytes() - plan.segments[1].bytes == needed_bytes, seed.text());
  }
}
