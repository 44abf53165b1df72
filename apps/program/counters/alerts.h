// The raised alerts in an appliance's counters file (apps/counters/counter_alerts.h), for `top`,
// `stats` and `doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/counters/counters_snapshot.h"
#include "apps/program/doctor/finding.h"
#include "apps/program/json_output.h"

namespace bedplate {

struct SeenAlert {
  std::string of;       // "shard main"
  std::string counter;  // "slow_client_ns"
  std::string says;

  std::string text() const { return of + ": " + says; }
};

// The raised alerts, in the order of the file.
std::vector<SeenAlert> alerts_of(const CountersSnapshot& counters);

// [{"of", "counter", "says"}].
JsonValue alerts_json(const CountersSnapshot& counters);

// Findings about each running appliance of the directory: a warning for each of its alerts, or a
// good finding. Warnings also tell of an appliance that has crashed or was killed, of the crash of
// an earlier run (NAME.crash), of an appliance that cannot be read, and of a directory that cannot
// be read. If the directory does not exist, there are no findings.
std::vector<Finding> appliance_findings(const std::string& directory);

}  // namespace bedplate
