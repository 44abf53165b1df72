// The shards of parts, as `bedplate plan` tells them.
#include "apps/program/plan/part_homes.h"

#include "apps/services/home_shards.h"
#include "tests/apps/boot/service_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using service_rig::CacheCounters;

namespace {

CounterSet labelled(const char* instance, const char* label, const char* value) {
  CounterSet set = {.owner = "cache",
                    .name = "gets",
                    .instance = instance,
                    .bytes = sizeof(CacheCounters),
                    .counters = described_counters<CacheCounters>()};
  set.labels.push_back({label, value});
  return set;
}

}  // namespace

TEST_GROUP_BASE(PartHomes, service_rig::ServiceBodies){};

TEST(PartHomes, AreLabelsOfCounters) {
  configuration.services = {&cache};
  cache.to_plan = [](ServicePlan& asked) {
    asked.counters(labelled("one", kHomeLabel, "b"));
    asked.counters(labelled("two", "place", "c"));
    asked.counters(labelled("three", kHomeLabel, ""));
    asked.counters(labelled("four", kHomeLabel, "a"));
    return Result<void>{};
  };
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  const std::vector<PartHome> homes = homes_of(made.value());
  LONGS_EQUAL(2, homes.size());
  STRCMP_EQUAL("cache", homes[0].service.c_str());
  STRCMP_EQUAL("[{\"service\":\"cache\",\"set\":\"gets\",\"part\":\"one\",\"shard\":\"b\"},"
               "{\"service\":\"cache\",\"set\":\"gets\",\"part\":\"four\",\"shard\":\"a\"}]",
               homes_json(homes).dump(-1).c_str());
}
