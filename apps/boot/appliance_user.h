// The user that the runtime becomes once the pool is sealed: [appliance] user. All that root alone
// may do is done by then; preflight tries the change in a child, so that it cannot fail after the
// seal. Threads: the main thread's, before services run.
#pragma once

#include <optional>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "platform/user.h"

namespace bedplate {

// Nothing: the configuration names none, or this process is that user already and no more.
// Errors: no such user, root, another than this process can become; or what does not go with it.
Result<std::optional<User>> find_appliance_user(const Configuration& configuration);

// Appends to `problems` what keeps this process from becoming that user after the seal, and the
// user from removing the appliance's files. Tries it, in a child process.
void check_appliance_user(const Configuration& configuration, const AppliancePlan& plan,
                          std::vector<Error>* problems);

// Where the runtime directory is not there: makes it, and gives it to the user.
Result<void> give_runtime_directory(const Configuration& configuration);

// Gives up root, but for what services planned. Requires: what check_appliance_user looked for.
Result<void> give_up_root(const Configuration& configuration, const AppliancePlan& plan);

}  // namespace bedplate
