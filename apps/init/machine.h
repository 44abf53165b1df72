// What belongs to the whole machine: its limits, its hugepages, and its end.
#pragma once

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "platform/result.h"

namespace bedplate {

// Lets this process lock as much memory as there is, and open as many files as the kernel allows.
Result<void> raise_limits() noexcept;

// Makes the kernel have as many free hugepages, of each size and on each node, as `plan` takes and
// its command line did not reserve. Logs what it does not try because nothing would be left for
// the kernel; what the kernel could not find, preflight will say.
void reserve_hugepages(const AppliancePlan& plan);

// Ends the machine, or stops it for good. Fit for signal handlers.
[[noreturn]] void end_machine(MachineEnd end) noexcept;

const char* name_of(MachineEnd end) noexcept;

}  // namespace bedplate
