// Counters for two snapshots, for tests of the values derived from them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "apps/program/counters/counter_changes.h"
#include "tests/apps/counters/counters_file_fixture.h"

namespace bedplate::test {

struct ShardLike {
  Counter busy_ns;
  Counter rounds;
  Counter stalls;
  Counter never;
  Histogram answer_ns;
};
inline void describe(CounterTable& table, ShardLike& c) {
  table.counter("busy_ns", c.busy_ns, "ns", "Time.");
  table.counter("rounds", c.rounds, "rounds", "Rounds.");
  table.counter("stalls", c.stalls, "stalls", "Stalls.");
  table.counter("never", c.never, "times", "Nothing.");
  table.histogram("answer_ns", c.answer_ns, "ns", "Until the answer.");
}
struct OwnerLike {
  Counter bytes;
  Counter used_bytes;
};
inline void describe(CounterTable& table, OwnerLike& c) {
  table.gauge("bytes", c.bytes, "bytes", "Planned.");
  table.gauge("used_bytes", c.used_bytes, "bytes", "Used.");
}

template <typename Counters>
CounterSet scene_set(const char* owner, const char* name, const char* instance) {
  return {owner, name, instance, sizeof(Counters), described_counters<Counters>()};
}

// An appliance with the counters `sets`, and two snapshots of them.
struct CountersScene : CountersFileFixture {
  std::vector<CounterSet> sets;
  std::unique_ptr<Running> running;
  std::unique_ptr<CountersSnapshot> before;
  std::unique_ptr<CountersSnapshot> now;

  void begin(std::vector<CounterSet> wanted) {
    sets = std::move(wanted);
    running = std::make_unique<Running>(directory, "demo", sets);
    running->publish();
  }
  template <typename Counters>
  Counters& of(size_t index) {
    return *static_cast<Counters*>(running->file.values(sets[index]));
  }
  std::unique_ptr<CountersSnapshot> look() {
    auto opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    return std::make_unique<CountersSnapshot>(snapshot_of(opened.value()));
  }
  void teardown() override {
    running.reset();
    CountersFileFixture::teardown();
  }
};

}  // namespace bedplate::test
