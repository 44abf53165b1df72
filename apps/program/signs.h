// What needs a look in an appliance, for `top`, `stats` and `doctor`: the signs that its counters
// file says are there (apps/boot/counter_signs.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/boot/counters_snapshot.h"
#include "apps/program/finding.h"
#include "apps/program/json_output.h"

namespace bedplate {

struct SeenSign {
  std::string of;       // "shard main"
  std::string counter;  // "slow_client_ns"
  std::string says;

  std::string text() const { return of + ": " + says; }
};

// In the order of the file.
std::vector<SeenSign> signs_of(const CountersSnapshot& counters);

// [{"of", "counter", "says"}].
Json signs_json(const CountersSnapshot& counters);

// For each appliance of the directory that runs: a warning for each of its signs, or that there is
// none. Of one that has crashed, or cannot be read, that. No directory: nothing runs.
std::vector<Finding> appliance_findings(const std::string& directory);

}  // namespace bedplate
