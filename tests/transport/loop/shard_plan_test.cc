// The plan of a shard: sums, the part of each service, and the words about an excess.
#include "transport/loop/shard_plan.h"

#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Owners by their indices alone: a plan asks the heap for nothing.
constexpr HeapOwner kCache{4};
constexpr HeapOwner kStore{5};
constexpr HeapOwner kStranger{6};

}  // namespace

TEST_GROUP(ShardPlan) {
  ShardPlan plan{"main"};
  OwnerCounts counts = {};
  char text[64];

  void setup() override {
    plan.add(kCache, "cache", {2, 10, 0});
    plan.add(kStore, "store", {1, 0, 4});
  }
};

TEST(ShardPlan, AddsUpWhatServicesPlan) {
  LONGS_EQUAL(3, plan.planned(ShardItem::kTimers));
  LONGS_EQUAL(10, plan.planned(ShardItem::kSockets));
  LONGS_EQUAL(4, plan.planned(ShardItem::kWatches));
}

TEST(ShardPlan, AllowsEachServiceItsOwnPart) {
  CHECK(plan.allows(ShardItem::kTimers, kCache, 2));
  CHECK_FALSE(plan.allows(ShardItem::kTimers, kCache, 3));
  CHECK_FALSE(plan.allows(ShardItem::kSockets, kStore, 1));
  CHECK(plan.allows(ShardItem::kWatches, kStore, 4));
  CHECK(plan.allows(ShardItem::kTimers, kStranger, 1000));  // the sum alone limits it
}

TEST(ShardPlan, StopsWithTheNameOfTheServiceThatHasTooMany) {
  counts[kCache.index] = 2;
  counts[kStore.index] = 2;
  BP_CHECK_DIES("bedplate: broken contract: service store arms more timers on shard main than it "
                "plans, 1: ServicePlan::timers (bp_plan_timers)\n",
                plan.stop_at_excess(ShardItem::kTimers, counts));
  counts = {};
  counts[kStranger.index] = 4;
  BP_CHECK_DIES("bedplate: broken contract: code of no service arms more timers on shard main than "
                "all services plan, 3: ServicePlan::timers (bp_plan_timers)\n",
                plan.stop_at_excess(ShardItem::kTimers, counts));
}

TEST(ShardPlan, LogsARefusalOnceInAWhile) {
  test::StderrCapture capture;
  counts[kStore.index] = 1;
  plan.log_refusal(ShardItem::kSockets, counts);
  plan.log_refusal(ShardItem::kSockets, counts);
  counts[kStore.index] = 5;
  plan.log_refusal(ShardItem::kWatches, counts);
  STRCMP_EQUAL("bedplate: warning: broken contract: service store attaches more sockets to shard "
               "main than it plans, 0: ServicePlan::connections (bp_plan_connections); "
               "it is refused (ENOSPC)\n"
               "bedplate: warning: broken contract: service store watches more descriptors on "
               "shard main than it plans, 4: ServicePlan::watches (bp_plan_watches); "
               "it is refused (ENOSPC)\n",
               capture.finish().c_str());
}

TEST(ShardPlan, WarnsOfAServiceThatHasMoreThanItsPart) {
  test::StderrCapture capture;
  counts[kStore.index] = 1;
  plan.look_at(ShardItem::kTimers, kStore, counts);
  counts[kStore.index] = 2;
  plan.look_at(ShardItem::kTimers, kCache, counts);
  plan.look_at(ShardItem::kTimers, kStore, counts);
  plan.look_at(ShardItem::kTimers, kStore, counts);
  STRCMP_EQUAL("bedplate: warning: broken contract: service store arms more timers on shard main "
               "than it plans, 1: ServicePlan::timers (bp_plan_timers)\n",
               capture.finish().c_str());
}

TEST(ShardPlan, ListsTheServicesOfASet) {
  STRCMP_EQUAL("", plan.list(0, text, sizeof text));
  STRCMP_EQUAL("", plan.list(set_of(kStranger), text, sizeof text));
  STRCMP_EQUAL(" (store)", plan.list(set_of(kStore) | set_of(kStranger), text, sizeof text));
  STRCMP_EQUAL(" (cache, store)", plan.list(set_of(kStore) | set_of(kCache), text, sizeof text));
  STRCMP_EQUAL(" (cac", plan.list(set_of(kStore) | set_of(kCache), text, 6));
}

TEST(ShardPlan, ServicesOfOneOwnerShareTheirParts) {
  plan.add(kCache, "third", {1, 0, 0});
  LONGS_EQUAL(4, plan.planned(ShardItem::kTimers));
  CHECK(plan.allows(ShardItem::kTimers, kCache, 3));
  counts[kCache.index] = 4;
  BP_CHECK_DIES("service without a heap owner of its own arms more timers on shard main",
                plan.stop_at_excess(ShardItem::kTimers, counts));
}
