// All counters of the runtime have descriptions.
#include "apps/boot/runtime_counters.h"

#include "apps/counters/counters_format.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(RuntimeCounters){};

// Every word of the runtime's counter structs is described, so every counter is shown.
TEST(RuntimeCounters, NoneIsForgotten) {
  for (const CounterSet& set : all_runtime_counters()) {
    uint64_t described_bytes = 0;
    for (const CounterDescription& counter : set.counters) {
      CHECK_TEXT(!counter.unit.empty() && !counter.help.empty(), counter.name.c_str());
      CHECK_TEXT(counter.help.size() < sizeof CounterRecord::help, counter.name.c_str());
      CHECK_TEXT(counter.words.size() < sizeof CounterRecord::words, counter.name.c_str());
      described_bytes += bytes_of(counter.kind);
    }
    // Structs with cache lines of their own have padding.
    uint64_t counted_bytes = set.bytes;
    if (set.name == "shard") {
      counted_bytes = sizeof(EventLoopCounters) + sizeof(SocketCounters) + 2 * sizeof(Counter);
    }
    if (set.name == "source") counted_bytes = sizeof(Histogram) + sizeof(Counter);
    if (set.name == "group") counted_bytes = sizeof(ShmCounters) + sizeof GroupCounters::members;
    if (set.name == "shard_group") counted_bytes = sizeof(ShmCounters);
    if (set.name == "verbs") counted_bytes = sizeof(VerbsCounters) + 2 * sizeof(Counter);
    CHECK_EQUAL_TEXT(counted_bytes, described_bytes, set.name.c_str());
  }
}
