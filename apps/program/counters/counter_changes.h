// The changes of counters between two snapshots of one file; all commands compute rates with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/counters/counters_snapshot.h"

namespace bedplate {

// One counter. Its texts point into the newer snapshot.
struct CounterChange {
  SeenCounter now;
  std::vector<Counter> added;  // to each of now.values; 0 if the older snapshot lacks it
  bool has_before = false;     // the older snapshot has it, with as many values
  bool is_changed = false;     // a value has changed; false without has_before
  double seconds = 0;          // between the snapshots; 0: no older one of this run

  // The counter's growth per second. Nothing: it is not a counter, or has no earlier value.
  std::optional<double> per_second() const noexcept;
  // The growth of a ns counter as a share of the time, 0 to 1. Nothing: as above, or another unit.
  std::optional<double> time_share() const noexcept;
  // The histogram of the added values only. Requires: it is a histogram.
  SeenCounter added_histogram() const noexcept;
};

struct SetChange {
  const SeenSet* set;  // of the newer snapshot
  std::vector<CounterChange> counters;

  const CounterChange* find(std::string_view name) const noexcept;
};

// The owner, and the set's name if the set has an instance or no owner: "shard", "cache gets".
std::string group_name(const SeenSet& set);

// The changes of every set of `now`, in its order; both snapshots outlive the result. `before` may
// be nullptr, or of another process (the appliance was restarted): then no counter has an earlier
// value.
std::vector<SetChange> counter_changes(const CountersSnapshot* before, const CountersSnapshot& now);

}  // namespace bedplate
