// `stats --watch`: prints all changes once a second: counters as growth per second, gauges as
// values, histograms as the values added in this second.
#include "apps/program/counters/watch_stats.h"

#include <cstdio>
#include <ctime>
#include <string>

#include "apps/program/commands.h"
#include "apps/program/counters/counter_changes.h"
#include "apps/program/counters/counter_text.h"
#include "apps/program/json_output.h"
#include "platform/assert.h"

namespace bedplate {
namespace {

// Prints a counter that has changed, or adds it to `json`.
void tell(const std::string& name, const CounterChange& change, JsonValue* json) {
  BP_ASSERT(change.has_before);  // it is changed, so it has an earlier value
  const auto rate = change.per_second();
  const SeenCounter& now = change.now;
  if (!rate && (now.is_histogram() || now.is_number() || now.read_words())) {
    const SeenCounter told = now.is_histogram() ? change.added_histogram() : now;
    if (json != nullptr) {
      (*json)[name] = counter_json(told);
    } else {
      std::printf("  %-44s %14s\n", name.c_str(), counter_text(told, true).c_str());
    }
    return;
  }
  // A counter of an unknown kind is shown as the growth of its first value.
  const double grown = rate ? *rate : static_cast<double>(change.added[0].read()) / change.seconds;
  if (json != nullptr) {
    (*json)[name] = {{"per_second", grown}};
  } else {
    const std::string text = value_text(static_cast<uint64_t>(grown + 0.5), now.unit, true);
    std::printf("  %-44s %14s/s\n", name.c_str(), text.c_str());
  }
}

void print_changes(const std::vector<SetChange>& changes, bool as_json) {
  JsonValue json = JsonValue::object();
  size_t count = 0;
  for (const SetChange& set : changes) {
    std::string name = group_name(*set.set) + " ";
    if (!set.set->instance.empty()) name += std::string(set.set->instance) + " ";
    for (const CounterChange& change : set.counters) {
      if (!change.is_changed) continue;
      ++count;
      tell(name + std::string(change.now.name), change, as_json ? &json : nullptr);
    }
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
  auto first = reader.snapshot();
  if (!first.ok()) return fail(first.error());
  CountersSnapshot before = first.take();
  while (reader.still_runs()) {
    const timespec second = {1, 0};
    nanosleep(&second, nullptr);
    auto now = reader.snapshot();
    if (!now.ok()) return fail(now.error());
    if (!as_json) std::printf("%s\n", reader.appliance().c_str());
    print_changes(counter_changes(&before, now.value()), as_json);
    before = now.take();
  }
  return kExitGood;
}

}  // namespace bedplate
