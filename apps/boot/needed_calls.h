// The system calls that an appliance cannot do without. They are tried before anything is taken: a
// call that a seccomp profile forbids would otherwise end a boot half way, or leave an appliance
// that reports ready and serves nobody.
//
// Optional calls are not here: io_uring's (uring_device.h), and calls whose absence the log
// reports.
#pragma once

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "platform/result.h"

namespace bedplate {

// Tries the calls that the configuration makes the appliance use. Errors: calls are forbidden; one
// error names all of them.
Result<void> check_calls(const Configuration& configuration, const AppliancePlan& plan) noexcept;

}  // namespace bedplate
