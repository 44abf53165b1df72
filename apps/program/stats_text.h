// The counters of an appliance for people: grouped, aligned, in units that can be read, with what
// is 0 told in a line.
#pragma once

#include <vector>

#include "apps/boot/counters_reader.h"

namespace bedplate {

// Each set under its name. What there are several of is a table where it fits into 100 columns.
void print_sets(const std::vector<SeenSet>& sets);

}  // namespace bedplate
