#include "apps/services/shard_counters.h"

#include <algorithm>
#include <utility>

namespace bedplate {
namespace {

bool is_of_shard(const CounterSet& set) noexcept { return set.role == CounterSetRole::kOfShard; }

CounterDescriptions without_alerts(const CounterDescriptions& counters) {
  std::vector<CounterDescription> all(counters.begin(), counters.end());
  for (CounterDescription& counter : all) counter.no_alert("the sum of all shards raises it");
  return all;
}

}  // namespace

CounterSet on_shard(CounterSet set, std::string_view name, size_t shard_count) {
  if (shard_count < 2) return set;
  set.instance = name;
  set.role = CounterSetRole::kOfShard;
  return set;
}

void add_sums(std::vector<CounterSet>* sets) {
  std::vector<CounterSet> all;
  std::vector<CounterSet> parts;
  for (size_t i = 0; i < sets->size(); ++i) {
    const CounterSet& set = (*sets)[i];
    if (!is_of_shard(set)) {
      all.push_back(set);
      continue;
    }
    const auto is_same = [&set](const CounterSet& other) {
      return is_of_shard(other) && other.name == set.name;
    };
    const auto here = sets->begin() + static_cast<ptrdiff_t>(i);
    if (std::any_of(sets->begin(), here, is_same)) continue;  // it is among the parts already
    CounterSet& sum = all.emplace_back(set);
    sum.instance.clear();
    sum.role = CounterSetRole::kSum;
    const CounterDescriptions quiet = without_alerts(set.counters);
    std::for_each(here, sets->end(), [&](const CounterSet& each) {
      if (!is_same(each)) return;
      const bool is_shared = each.counters.is_shared_with(set.counters);
      CounterSet& part = parts.emplace_back(each);
      part.counters = is_shared ? quiet : without_alerts(each.counters);
    });
  }
  all.insert(all.end(), parts.begin(), parts.end());
  *sets = std::move(all);
}

}  // namespace bedplate
