// The size of segment 0 of an appliance: it holds the memory for reading its configuration,
// planning it and looking at the machine, before there is a heap.
//
// It follows from the configuration alone, and so is the same for `plan` and for `run`: the larger
// the file, and the more there is of what it describes, the larger segment 0. The figures are above
// measured ones; tests/system/boot_budget_test.py boots the largest that there is of each kind. If
// they are not enough, the boot says so, with the cure.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/services/service_plan.h"

namespace bedplate {

// A multiple of kBootBytesGranularity and of segment 0's pages; boot_segment_bytes() at least.
uint64_t plan_boot_bytes(const Configuration& configuration,
                         const std::vector<ServiceNeeds>& services);

}  // namespace bedplate
