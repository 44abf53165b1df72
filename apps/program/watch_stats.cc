// `stats --watch`: once a second, what has changed: counters by how much for each second, gauges as
// they are, histograms by what was added in this second.
//
// Tested by tests/system/service_c_test.py.
#include "apps/program/watch_stats.h"

#include <cstdio>
#include <ctime>
#include <map>
#include <string>

#include "apps/program/commands.h"
#include "apps/program/counter_text.h"
#include "apps/program/json_output.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

// A counter as it was seen at one moment.
struct Seen {
  SeenCounter counter;
  std::vector<uint64_t> values;
};
using Values = std::map<std::string, Seen>;

Values read_values(const CountersReader& reader) {
  Values all;
  for (const SeenSet& set : reader.sets()) {
    std::string name;
    const bool has_set = set.owner.empty() || !set.instance.empty();
    for (const std::string_view part : {set.owner, has_set ? set.name : "", set.instance}) {
      if (!part.empty()) name += std::string(part) + " ";
    }
    for (const SeenCounter& counter : set.counters) {
      Seen& seen = all[name + std::string(counter.name)];
      seen.counter = counter;
      for (const Counter& value : counter.values) seen.values.push_back(value.read());
    }
  }
  return all;
}

// What lies between two moments, as a counter of its own.
std::vector<Counter> difference(const Seen& before, const Seen& now) {
  std::vector<Counter> added(now.values.size());
  for (size_t i = 0; i < added.size(); ++i) added[i].set(now.values[i] - before.values[i]);
  return added;
}

// What there is to tell of a counter that has changed.
void tell(const std::string& name, const Seen& before, const Seen& now, double seconds,
          Json* json) {
  SeenCounter counter = now.counter;
  const std::vector<Counter> added = difference(before, now);
  const bool is_rate = counter.is(CounterKind::kCounter);
  if (!is_rate && (counter.is_histogram() || counter.is_number() || counter.read_words())) {
    if (counter.is_histogram()) counter.values = added;
    if (json != nullptr) {
      (*json)[name] = counter_json(counter);
    } else {
      std::printf("  %-44s %14s\n", name.c_str(), counter_text(counter, true).c_str());
    }
    return;
  }
  const double rate = static_cast<double>(added[0].read()) / seconds;
  if (json != nullptr) {
    (*json)[name] = {{"per_second", rate}};
  } else {
    const std::string text = value_text(static_cast<uint64_t>(rate + 0.5), counter.unit, true);
    std::printf("  %-44s %14s/s\n", name.c_str(), text.c_str());
  }
}

void print_changes(const Values& before, const Values& now, double seconds, bool as_json) {
  Json json = Json::object();
  size_t count = 0;
  for (const auto& [name, seen] : now) {
    const auto last = before.find(name);
    if (last == before.end() || last->second.values == seen.values ||
        last->second.values.size() != seen.values.size()) {
      continue;
    }
    ++count;
    tell(name, last->second, seen, seconds, as_json ? &json : nullptr);
  }
  if (as_json) {
    print_json(json, -1);
  } else if (count == 0) {
    std::printf("  nothing has changed\n");
  }
  std::fflush(stdout);
}

}  // namespace

int watch_stats(const CountersReader& reader, bool as_json) {
  Values before = read_values(reader);
  uint64_t before_ns = monotonic_ns();
  while (reader.still_runs()) {
    const timespec second = {1, 0};
    nanosleep(&second, nullptr);
    Values now = read_values(reader);
    const uint64_t now_ns = monotonic_ns();
    const double seconds =
        static_cast<double>(now_ns - before_ns) / static_cast<double>(kNsPerSecond);
    if (!as_json) std::printf("%s\n", std::string(reader.appliance()).c_str());
    print_changes(before, now, seconds, as_json);
    before = std::move(now);
    before_ns = now_ns;
  }
  return kExitGood;
}

}  // namespace bedplate
