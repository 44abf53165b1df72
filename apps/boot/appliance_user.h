// The user that the runtime becomes once all memory is taken: [appliance] user.
//
// Before any thread is started and any device is opened to be used: so all threads have one and the
// same credentials, without which Linux takes no requests to an RDMA device that were written.
#pragma once

#include <optional>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/change_user.h"
#include "platform/user.h"

namespace bedplate {

// Nothing: the configuration names none, or this process is that user already and no more.
// Errors: no such user, root, another than this process can become; or what does not go with it.
Result<std::optional<User>> find_appliance_user(const Configuration& configuration);

// Calls `look` with the rights that the appliance has once root is given up: in a child process,
// where it will be. Where it cannot, nothing is looked at: check_appliance_user says why.
void look_as_appliance(const Configuration& configuration, const AppliancePlan& plan,
                       const Look& look, std::vector<Error>* problems);

// Appends to `problems` what keeps this process from becoming that user, and the user from making
// and removing the appliance's files. Tries it, in a child process.
void check_appliance_user(const Configuration& configuration, const AppliancePlan& plan,
                          std::vector<Error>* problems);

// Where the runtime directory is not there: makes it, and gives it to the user.
Result<void> give_runtime_directory(const Configuration& configuration);

// Gives up root, but for what services planned, and gives the user the files of `pool`: it hands
// them out. Requires: what check_appliance_user looked for; this is the only thread.
Result<void> give_up_root(const Configuration& configuration, const AppliancePlan& plan,
                          PinnedPool& pool);

}  // namespace bedplate
