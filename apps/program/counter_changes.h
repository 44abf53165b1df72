// What counters did between two snapshots of one file: the one way in which commands make rates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/counters_snapshot.h"

namespace bedplate {

// One counter. Texts lie in the newer snapshot.
struct CounterChange {
  SeenCounter now;
  std::vector<Counter> added;  // to each of now.values; 0 where the older one did not know it
  bool has_before = false;     // whether the older snapshot had it, with as many values
  bool is_changed = false;     // whether any value is another one; false without has_before
  double seconds = 0;          // that lie between; 0: nothing does

  // How much a counter grew for each second. Nothing: it is no counter, or there is no before.
  std::optional<double> per_second() const noexcept;
  // Of a counter of ns: which share of the time, 0 to 1, it stands for.
  std::optional<double> time_share() const noexcept;
  // A histogram of what was added alone.
  SeenCounter added_histogram() const noexcept;
};

struct SetChange {
  const SeenSet* set;  // of the newer snapshot
  std::vector<CounterChange> counters;

  const CounterChange* find(std::string_view name) const noexcept;
};

// "shard", "cache gets": the owner, and the set's name where it says more.
std::string group_name(const SeenSet& set);

// Of every set of `now`, in its order; both snapshots outlive what is returned. `before` may be
// nullptr, or of another process (the appliance was restarted): then nothing has a before.
std::vector<SetChange> counter_changes(const CountersSnapshot* before, const CountersSnapshot& now);

}  // namespace bedplate
