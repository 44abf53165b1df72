// The sums of counters of several shards: what is added, what is not, and which sets belong to one.
#include "apps/counters/counter_sums.h"

#include <cstddef>
#include <string>
#include <vector>

#include "apps/services/shard_counters.h"
#include "platform/histogram.h"
#include "tests/apps/counters/counters_file_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Various {
  Counter lines;
  Counter held_bytes;
  Counter longest_ns;
  Counter is_late;
  Counter mode;
  Histogram time_ns;
};
void describe(CounterTable& table, Various& counters) {
  table.counter("lines", counters.lines, "lines", "Lines.").alert_as_it_grows("{lines} came");
  table.gauge("held_bytes", counters.held_bytes, "bytes", "What it holds.");
  table.gauge("longest_ns", counters.longest_ns, "ns", "The longest.");
  table.boolean("is_late", counters.is_late, "Whether it is.");
  table.state("mode", counters.mode, "off|on", "What it does.");
  table.histogram("time_ns", counters.time_ns, "ns", "Times.");
}

CounterSet set_of(const char* name, const char* shard, size_t shard_count) {
  return on_shard({"echo", name, "", sizeof(Various), described_counters<Various>()}, shard,
                  shard_count);
}

}  // namespace

TEST_GROUP_BASE(CounterSums, test::CountersFileFixture) {
  std::vector<CounterSet> sets = {set_of("clients", "a", 3), set_of("other", "a", 1),
                                  set_of("clients", "b", 3), set_of("clients", "c", 3)};

  void setup() override {
    test::CountersFileFixture::setup();
    add_sums(&sets);
  }
  static Various& values(test::Running & running, const CounterSet& set) {
    return *static_cast<Various*>(running.file.values(set));
  }
};

TEST(CounterSums, AreSetsWithoutAnInstanceBeforeThoseOfTheShards) {
  std::string told;
  for (const CounterSet& set : sets) {
    told += set.name + " '" + set.instance + "' " +
            std::to_string(static_cast<uint32_t>(set.role)) + "\n";
  }
  STRCMP_EQUAL("clients '' 2\nother '' 0\nclients 'a' 1\nclients 'b' 1\nclients 'c' 1\n",
               told.c_str());
  // The sum alone raises alerts.
  CHECK(sets[0].counters[0].alert.rule == CounterAlert::Rule::kGrows);
  for (size_t i = 2; i < 5; ++i) {
    CHECK(sets[i].counters[0].alert.rule == CounterAlert::Rule::kNone);
    CHECK(!sets[i].counters[0].alert.why_none.empty());
    CHECK(sets[i].counters.is_shared_with(sets[2].counters));
  }
}

TEST(CounterSums, OneShardHasItsSetAsEver) {
  std::vector<CounterSet> alone = {set_of("clients", "a", 1)};
  add_sums(&alone);
  LONGS_EQUAL(1, alone.size());
  STRCMP_EQUAL("", alone[0].instance.c_str());
  CHECK(alone[0].role == CounterSetRole::kAlone);
  CHECK(alone[0].counters[0].alert.rule == CounterAlert::Rule::kGrows);
}

TEST(CounterSums, AddWhatCanBeAdded) {
  test::Running running(directory, "demo", sets);
  uint64_t factor = 1;
  for (size_t i = 2; i < 5; ++i, factor *= 10) {
    Various& one = values(running, sets[i]);
    one.lines.set(factor);
    one.held_bytes.set(7 * factor);
    one.longest_ns.set(i == 3 ? 5000 : factor);
    one.is_late.set(i == 4 ? 1 : 0);
    one.mode.set(i == 2 ? 1 : 0);
    for (uint64_t k = 0; k < factor; ++k) one.time_ns.add(1000);
  }
  values(running, sets[1]).lines.set(4);
  add_up_shards(running.file.header());
  const Various& sum = values(running, sets[0]);
  CHECK_EQUAL(111, sum.lines.read());
  CHECK_EQUAL(777, sum.held_bytes.read());
  CHECK_EQUAL(5000, sum.longest_ns.read());
  CHECK_EQUAL(1, sum.is_late.read());
  CHECK_EQUAL(1, sum.mode.read());  // that of the first shard
  CHECK_EQUAL(111, sum.time_ns.count());
  CHECK_EQUAL(4, values(running, sets[1]).lines.read());
}

TEST(CounterSums, AGaugeWithoutAValueIsLeftOut) {
  test::Running running(directory, "demo", sets);
  for (size_t i = 2; i < 5; ++i) values(running, sets[i]).held_bytes.set(kNoValue);
  add_up_shards(running.file.header());
  CHECK_EQUAL(kNoValue, values(running, sets[0]).held_bytes.read());
  values(running, sets[3]).held_bytes.set(5);
  add_up_shards(running.file.header());
  CHECK_EQUAL(5, values(running, sets[0]).held_bytes.read());
}

TEST(CounterSums, ASnapshotIsAsRecentAsItsParts) {
  test::Running running(directory, "demo", sets);
  running.publish();
  values(running, sets[2]).lines.set(2);
  values(running, sets[4]).lines.set(3);
  CHECK_EQUAL(0, values(running, sets[0]).lines.read());
  auto reader = CountersReader::open(directory, "demo");
  CHECK(reader.ok());
  const CountersSnapshot seen = test::snapshot_of(reader.value());
  CHECK_EQUAL(5, seen.sets()[0].read("lines").value());
  CHECK_EQUAL(3, seen.sets()[4].read("lines").value());
  CHECK_EQUAL(0, values(running, sets[0]).lines.read());  // only the copy is changed
}

// A foreign file may claim anything of its sets.
TEST(CounterSums, AFileWhoseSumLiesUponItsRecordsChangesNoRecord) {
  test::Running running(directory, "demo", sets);
  CountersHeader& header = running.file.header();
  auto* records = reinterpret_cast<CounterSetRecord*>(reinterpret_cast<std::byte*>(&header) +
                                                      header.sets.offset);
  values(running, sets[2]).lines.set(2);
  const uint64_t right = records[0].values;
  const OwnerName name = records[1].name;
  records[0].values = header.sets.offset + sizeof(CounterSetRecord);
  add_up_shards(header);
  CHECK(records[1].name == name);
  records[0].values = right;
  records[0].count = 0;
  add_up_shards(header);  // its parts have other counters
  CHECK_EQUAL(0, values(running, sets[0]).lines.read());
}
