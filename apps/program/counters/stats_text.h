// The counters of an appliance for people: grouped, aligned, in readable units, with all zeros in
// one line.
#pragma once

#include <vector>

#include "apps/counters/counters_reader.h"

namespace bedplate {

// Prints each set under its name. Several instances become a table if it fits into 100 columns.
void print_sets(const std::vector<SeenSet>& sets);

}  // namespace bedplate
