#include "apps/program/counters/counter_changes.h"

#include "platform/units.h"
#include "tests/apps/program/counters_scene.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(CounterChanges, CountersScene){};

TEST(CounterChanges, ACounterIsARateAndAHistogramWhatWasAdded) {
  begin({scene_set<ShardLike>("", "shard", "main")});
  of<ShardLike>(0).rounds.set(1000);
  of<ShardLike>(0).answer_ns.add(5'000'000, 100);
  before = look();
  of<ShardLike>(0).rounds.add(500);
  of<ShardLike>(0).answer_ns.add(7);
  now = look();
  const auto changes = counter_changes(before.get(), *now);
  LONGS_EQUAL(1, changes.size());
  const CounterChange* rounds = changes[0].find("rounds");
  CHECK(rounds != nullptr && rounds->is_changed);
  CHECK(rounds->seconds > 0);
  DOUBLES_EQUAL(500 / rounds->seconds, *rounds->per_second(), 1e-6);
  CHECK_FALSE(rounds->time_share().has_value());
  const SeenCounter added = changes[0].find("answer_ns")->added_histogram();
  CHECK_EQUAL(1, Histogram::count_of(added.values));
  CHECK_EQUAL(7, Histogram::percentile_of(added.values, 0.99));
  CHECK_FALSE(changes[0].find("never")->is_changed);
  POINTERS_EQUAL(nullptr, changes[0].find("nothing"));
}

TEST(CounterChanges, TimeIsAShareOfItAndNeverMore) {
  begin({scene_set<ShardLike>("", "shard", "main")});
  before = look();
  of<ShardLike>(0).busy_ns.add(kNsPerSecond * 3600);  // a callback of one hour has just ended
  now = look();
  const auto changes = counter_changes(before.get(), *now);
  DOUBLES_EQUAL(1.0, *changes[0].find("busy_ns")->time_share(), 0);
}

TEST(CounterChanges, WithoutABeforeThereAreNoRates) {
  begin({scene_set<ShardLike>("", "shard", "main")});
  of<ShardLike>(0).rounds.set(1000);
  now = look();
  const auto changes = counter_changes(nullptr, *now);
  const CounterChange* rounds = changes[0].find("rounds");
  CHECK_FALSE(rounds->has_before || rounds->is_changed || rounds->per_second().has_value());
  CHECK_EQUAL(1000, rounds->now.read());
}

// A set that is taken between the two snapshots has no earlier values.
TEST(CounterChanges, WhatIsNewHasNoRate) {
  CounterSet spare = scene_set<ShardLike>("", "shard", "");
  spare.is_spare = true;
  begin({spare, scene_set<OwnerLike>("", "owner", "heap")});
  before = look();
  running->file.take_spare<ShardLike>("shard", "late")->rounds.set(5);
  now = look();
  const auto changes = counter_changes(before.get(), *now);
  LONGS_EQUAL(2, changes.size());
  CHECK_FALSE(changes[0].find("rounds")->has_before);
  CHECK(changes[1].find("bytes")->has_before);
}

TEST(CounterChanges, AnotherProcessIsNotComparedWith) {
  leave_behind("other", [](CountersHeader& header) { header.pid += 1; });
  auto other = CountersReader::open(directory, "other");
  CHECK(other.ok());
  const CountersSnapshot old = snapshot_of(other.value());
  leave_behind("other");
  auto again = CountersReader::open(directory, "other");
  const CountersSnapshot young = snapshot_of(again.value());
  CHECK_FALSE(counter_changes(&old, young)[0].counters[0].has_before);
  CHECK(counter_changes(&young, young)[0].counters[0].has_before);
  remove_all("other");
}

// Each run of an image has process ID 1.
TEST(CounterChanges, AnotherRunOfTheSamePidIsNotComparedWith) {
  leave_behind("other");
  auto other = CountersReader::open(directory, "other");
  CHECK(other.ok());
  const CountersSnapshot old = snapshot_of(other.value());
  leave_behind("other", [&](CountersHeader& header) {
    CHECK(header.created_ns > 0);
    header.created_ns = old.header().created_ns + 1;
  });
  auto again = CountersReader::open(directory, "other");
  const CountersSnapshot young = snapshot_of(again.value());
  LONGS_EQUAL(old.pid(), young.pid());
  CHECK_FALSE(counter_changes(&old, young)[0].counters[0].has_before);
  remove_all("other");
}

TEST(CounterChanges, GroupsAreNamedByOwnerAndSet) {
  SeenSet set;
  set.name = "shard";
  set.instance = "main";
  STRCMP_EQUAL("shard", group_name(set).c_str());
  set.owner = "relay";
  STRCMP_EQUAL("relay shard", group_name(set).c_str());
  set.instance = "";
  STRCMP_EQUAL("relay", group_name(set).c_str());
}
