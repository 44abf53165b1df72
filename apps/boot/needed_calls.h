// The system calls that an appliance cannot do without, tried before anything is taken: one that a
// seccomp profile forbids would otherwise end a boot half way, or leave an appliance that is ready
// and deaf.
//
// Calls that can be done without are not here: io_uring's (uring_device.h), and those whose absence
// the log tells.
#pragma once

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "platform/result.h"

namespace bedplate {

// Tries those that the configuration makes it use. Errors: the names of those that are forbidden.
Result<void> check_calls(const Configuration& configuration, const AppliancePlan& plan) noexcept;

}  // namespace bedplate
