// The parts of services that one shard serves, in the output of `bedplate plan`: a stream, for
// example. A service tells the shard by a label of the part's counters (kHomeLabel).
#pragma once

#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/program/json_output.h"

namespace bedplate {

struct PartHome {
  std::string service;
  std::string set;   // of counters: "streams"
  std::string part;  // its instance: "news"
  std::string shard;
};

// In the order of the services, and of their counters.
std::vector<PartHome> homes_of(const AppliancePlan& plan);

JsonValue homes_json(const std::vector<PartHome>& homes);

// Prints a line for each.
void print_homes(const std::vector<PartHome>& homes);

}  // namespace bedplate
