// The IOMMU group of a port's device, opened by EAL: nobody else can open it then, and EAL would
// open none that somebody else has.
//
// EAL would put the group into a container of its own when it looks at the device, and map memory
// there. It does neither where the group has a container by then: the appliance's, which has the
// whole pool (docs/vfio.md).
#pragma once

#include <string>

#include "platform/result.h"

namespace bedplate {

// Opens the group `number`, or finds it open. Returns EAL's descriptor, which EAL closes with the
// last port of the group. Requires: EAL was started, and has not looked at a device of the group.
// Threads: the main thread. Errors: what EAL says.
Result<int> open_eal_vfio_group(const std::string& number);

}  // namespace bedplate
