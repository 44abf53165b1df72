// Opens the IOMMU group of a port's device through EAL. A group has only one opener at a time: once
// EAL has opened it, nobody else can, and EAL cannot open a group that somebody else has open.
//
// When EAL probes the device, it puts the group into a container of its own and maps memory there.
// It skips both if the group already has a container: the appliance's, which has the whole pool
// mapped (docs/vfio.md).
#pragma once

#include <string>

#include "platform/result.h"

namespace bedplate {

// Opens the group `number` (decimal) through EAL, or finds it open. Returns EAL's descriptor: do
// not close it, because EAL closes it with the last port of the group. Requires: EAL is started,
// and has not probed a device of the group.
// Threads: the main thread. Errors: they quote EAL.
Result<int> open_eal_vfio_group(const std::string& number);

}  // namespace bedplate
