// `stats --watch`: once a second, what has changed: counters by how much for each second, gauges and
// latencies as they are.
#include "apps/program/watch_stats.h"

#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>

#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

struct Seen {
  uint64_t value = 0;
  bool is_gauge = false;
};
using Values = std::map<std::string, Seen>;

void add_shards(const CountersSnapshot& snapshot, Values* all) {
  for (uint32_t i = 0; i < snapshot.layout->shard_count; ++i) {
    const ShardCounters& shard = snapshot.layout->shards[i];
    const std::string name = std::string("shard ") + shard.name.text + " ";
    (*all)[name + "iterations"] = {shard.loop.iterations.read()};
    (*all)[name + "sleeps"] = {shard.loop.sleeps.read()};
    (*all)[name + "system_calls"] = {shard.sockets.system_calls.read()};
    (*all)[name + "received_bytes"] = {shard.sockets.received_bytes.read()};
    (*all)[name + "sent_bytes"] = {shard.sockets.sent_bytes.read()};
  }
}

Values read_values(const CountersSnapshot& snapshot) {
  Values all;
  add_shards(snapshot, &all);
  for (const CounterSetRecord& set : snapshot.sets()) {
    const std::string instance = set.instance.text[0] == '\0'
                                     ? ""
                                     : std::string(set.name.text) + " " + set.instance.text + " ";
    for (const CounterRecord& counter : snapshot.counters(set)) {
      const std::string name = std::string(set.owner.text) + " " + instance + counter.name;
      const auto kind = static_cast<CounterKind>(counter.kind);
      if (kind == CounterKind::kHistogram) {
        const Histogram& histogram = snapshot.histogram(set, counter);
        all[name + " p50"] = {histogram.percentile(0.5), true};
        all[name + " p99"] = {histogram.percentile(0.99), true};
      } else {
        all[name] = {snapshot.value(set, counter), kind == CounterKind::kGauge};
      }
    }
  }
  return all;
}

void print_changes(const Values& before, const Values& now, double seconds, bool as_json) {
  Json json = Json::object();
  size_t count = 0;
  for (const auto& [name, seen] : now) {
    const auto last = before.find(name);
    if (last == before.end() || last->second.value == seen.value) continue;
    ++count;
    const double rate = static_cast<double>(seen.value - last->second.value) / seconds;
    if (as_json) {
      json[name] = seen.is_gauge ? Json(seen.value) : Json({{"per_second", rate}});
    } else if (seen.is_gauge) {
      std::printf("  %-44s %14" PRIu64 "\n", name.c_str(), seen.value);
    } else {
      std::printf("  %-44s %14.0f/s\n", name.c_str(), rate);
    }
  }
  if (as_json) {
    std::printf("%s\n", json.dump().c_str());
  } else if (count == 0) {
    std::printf("  nothing has changed\n");
  }
  std::fflush(stdout);
}

}  // namespace

int watch_stats(const CountersSnapshot& snapshot, bool as_json) {
  Values before = read_values(snapshot);
  uint64_t before_ns = monotonic_ns();
  while (snapshot.still_runs()) {
    const timespec second = {1, 0};
    nanosleep(&second, nullptr);
    Values now = read_values(snapshot);
    const uint64_t now_ns = monotonic_ns();
    const double seconds =
        static_cast<double>(now_ns - before_ns) / static_cast<double>(kNsPerSecond);
    if (!as_json) std::printf("%s\n", snapshot.layout->appliance.text);
    print_changes(before, now, seconds, as_json);
    before = std::move(now);
    before_ns = now_ns;
  }
  return kExitGood;
}

}  // namespace bedplate
