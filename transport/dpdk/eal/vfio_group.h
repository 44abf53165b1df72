// The IOMMU group of a port's device, opened by EAL: nobody else can open it then, and EAL cannot
// open a group that somebody else has open.
//
// When EAL probes the device, it puts the group into a container of its own and maps memory there.
// It does neither if the group has a container by then: the appliance's, which has the whole pool
// (docs/vfio.md).
#pragma once

#include <string>

#include "platform/result.h"

namespace bedplate {

// Opens the group `number`, or finds it open. Returns EAL's descriptor, which EAL closes with the
// last port of the group. Requires: EAL was started, and has not probed a device of the group.
// Threads: the main thread. Errors: in EAL's words.
Result<int> open_eal_vfio_group(const std::string& number);

}  // namespace bedplate
