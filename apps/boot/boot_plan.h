// The size of segment 0 of an appliance: it holds the memory for reading its configuration,
// planning it and looking at the machine, before there is a heap.
//
// The size follows from the configuration alone, so `plan` and `run` compute the same. It grows
// with the size of the file and with the number of objects that the file describes. The figures are
// above measured ones; tests/system/boot_budget_test.py boots the largest configuration of each
// kind. If they are not enough, the boot says so, with the cure.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/services/service_plan.h"

namespace bedplate {

// A multiple of kBootBytesGranularity and of segment 0's pages, at least boot_segment_bytes().
uint64_t plan_boot_bytes(const Configuration& configuration,
                         const std::vector<ServiceNeeds>& services);

}  // namespace bedplate
