// The size of segment 0 of an appliance: it holds the memory for reading its configuration,
// planning it and looking at the machine, before there is a heap.
//
// `plan` and `run` compute the same size if they run the same program with the same environment
// (boot_segment.h). It grows with the size of the file and with the number of objects that the file
// describes. If malloc does not use the pool, segment 0 keeps its size. Each figure is above the
// measured one; tests/system/boot_budget_test.py boots the largest configuration of each kind. If
// the size is too small, the boot says so, with the cure.
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
