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

PoolBudget budget_of(uint64_t bytes, PageSize page = PageSize::k2MiB) {
  PoolBudget budget;
  budget.bytes = bytes;
  budget.page = page;
  budget.boot_bytes = 16 * kMiB;
  budget.heap_min_bytes = 32 * kMiB;
  return budget;
}

SegmentRequest request_of(const OwnerName& owner, std::vector<CarvePlan> carves) {
  return {owner, std::move(carves)};
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

TEST_GROUP(PoolPlan) {};

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
  const std::vector<SegmentRequest> requests = {request_of("volume:ram0", {{"v", 64 * kMiB}})};
  const PoolPlan plan =
      make_pool_plan(budget_of(2 * kGiB + 16 * kMiB, PageSize::k1GiB), requests).take();
  CHECK(plan.segments[1].bytes == kGiB);
  CHECK(plan.segments[2].bytes == kGiB);
  check_refused(budget_of(2 * kGiB, PageSize::k1GiB), requests,
                "planning a pool of 2 GiB: heap needs 1073741824 bytes, 1056964608 are left: short "
                "by 16777216 bytes (16 MiB); set [pool] bytes to \"3 GiB\" or more, or make its "
                "services smaller");
}

TEST(PoolPlan, MoreSegmentsThanThePoolHasAreRefused) {
  std::vector<SegmentRequest> requests(kSegmentCountMax - 2, request_of("one", {{"c", 64}}));
  CHECK(make_pool_plan(budget_of(kGiB), requests).ok());
  requests.push_back(requests[0]);
  CHECK_FALSE(make_pool_plan(budget_of(kGiB), requests).ok());
}

TEST(PoolPlan, MoreAddressSpaceThanThePoolHasIsRefused) {
  // Segment 0 takes a region of its own.
  CHECK(make_pool_plan(budget_of(kPoolSpanBytes - kGiB + 16 * kMiB), {}).ok());
  const std::string message = std::string("planning a pool of 1 TiB: its segments take more ") +
                              "address space than the pool's range of " +
                              format_bytes(kPoolSpanBytes).text +
                              " has; make the pool or its services smaller";
  check_refused(budget_of(kTiB), {}, message.c_str());
  CHECK_FALSE(make_pool_plan(budget_of(kPoolSpanBytes - kGiB + 18 * kMiB), {}).ok());
}

TEST(PoolPlan, CarveThatIsNoWholeCacheLinesIsAProgrammingError) {
  const std::vector<SegmentRequest> requests = {request_of("odd", {{"odd", 65}})};
  BP_CHECK_DIES("assertion failed: carve.bytes % kCacheLineBytes == 0",
                (void)make_pool_plan(budget_of(256 * kMiB), requests));
}

// The model: walk through the owners with the bytes that are left.
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
