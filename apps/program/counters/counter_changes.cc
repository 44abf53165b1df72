#include "apps/program/counters/counter_changes.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {
namespace {

using SetKey = std::tuple<std::string_view, std::string_view, std::string_view>;

SetKey key_of(const SeenSet& set) { return {set.owner, set.name, set.instance}; }

CounterChange change_of(const SeenSet* before, const SeenCounter& now, double seconds) {
  BP_ASSERT(!now.values.empty());
  CounterChange change;
  change.now = now;
  change.added = std::vector<Counter>(now.values.size());
  change.seconds = seconds;
  const SeenCounter* last = before == nullptr ? nullptr : before->find(now.name);
  if (last == nullptr || last->values.size() != now.values.size()) return change;
  change.has_before = true;
  for (size_t i = 0; i < now.values.size(); ++i) {
    const uint64_t added = now.values[i].read() - last->values[i].read();
    change.added[i].set(added);
    change.is_changed = change.is_changed || added != 0;
  }
  return change;
}

}  // namespace

std::optional<double> CounterChange::per_second() const noexcept {
  if (!has_before || seconds <= 0 || !now.is(CounterKind::kCounter)) return {};
  return static_cast<double>(added[0].read()) / seconds;
}

std::optional<double> CounterChange::time_share() const noexcept {
  const auto rate = per_second();
  if (!rate || now.unit != "ns") return {};
  return std::min(*rate / static_cast<double>(kNsPerSecond), 1.0);
}

SeenCounter CounterChange::added_histogram() const noexcept {
  BP_ASSERT(now.is_histogram());
  BP_ASSERT(added.size() == now.values.size());
  SeenCounter histogram = now;
  histogram.values = added;
  return histogram;
}

const CounterChange* SetChange::find(std::string_view name) const noexcept {
  const auto found = std::find_if(counters.begin(), counters.end(),
                                  [&](const CounterChange& one) { return one.now.name == name; });
  return found == counters.end() ? nullptr : &*found;
}

std::string group_name(const SeenSet& set) {
  if (set.owner.empty()) return std::string(set.name);
  // A service's sets that have no instance form one group.
  if (set.instance.empty()) return std::string(set.owner);
  return std::string(set.owner) + " " + std::string(set.name);
}

std::vector<SetChange> counter_changes(const CountersSnapshot* before,
                                       const CountersSnapshot& now) {
  std::map<SetKey, const SeenSet*> known;
  double seconds = 0;
  if (before != nullptr && before->is_of_run(now)) {
    for (const SeenSet& set : before->sets()) known.emplace(key_of(set), &set);
    seconds = static_cast<double>(now.taken_ns() - before->taken_ns()) /
              static_cast<double>(kNsPerSecond);
  }
  std::vector<SetChange> all;
  for (const SeenSet& set : now.sets()) {
    const auto last = known.find(key_of(set));
    SetChange& change = all.emplace_back();
    change.set = &set;
    for (const SeenCounter& counter : set.counters) {
      change.counters.push_back(
          change_of(last == known.end() ? nullptr : last->second, counter, seconds));
    }
  }
  return all;
}

}  // namespace bedplate
