// The signs of an appliance (what needs a look), for `top`, `stats` and `doctor`: those that are
// raised in its counters file (apps/counters/counter_signs.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/counters/counters_snapshot.h"
#include "apps/program/doctor/finding.h"
#include "apps/program/json_output.h"

namespace bedplate {

struct SeenSign {
  std::string of;       // "shard main"
  std::string counter;  // "slow_client_ns"
  std::string says;

  std::string text() const { return of + ": " + says; }
};

// The raised signs, in the order of the file.
std::vector<SeenSign> signs_of(const CountersSnapshot& counters);

// [{"of", "counter", "says"}].
Json signs_json(const CountersSnapshot& counters);

// For each running appliance of the directory: a warning for each of its signs, or one good
// finding. An appliance that has crashed, or cannot be read, has a warning that says so. No
// directory: nothing runs.
std::vector<Finding> appliance_findings(const std::string& directory);

}  // namespace bedplate
