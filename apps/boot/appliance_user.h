// The user that the runtime becomes once all memory is taken: [appliance] user.
//
// The change comes before any thread is started and any device is opened for use. So all threads
// have the same credentials; otherwise Linux takes no requests to an RDMA device by write().
#pragma once

#include <optional>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/change_user.h"
#include "platform/user.h"

namespace bedplate {

// Returns nothing if the configuration names none, or this process is that user already. Errors: no
// such user; root; one that this process cannot become; this is an image's first process.
Result<std::optional<User>> find_appliance_user(const Configuration& configuration);

// Calls `look` with the rights that the appliance has once root is given up; in a child process if
// root will be given up. Does not call it if root cannot be given up: check_appliance_user says
// why.
void look_as_appliance(const Configuration& configuration, const AppliancePlan& plan,
                       const Look& look, std::vector<Error>* problems);

// Appends to `problems` what keeps this process from becoming that user, and the user from making
// and removing the appliance's files. Tries it, in a child process.
void check_appliance_user(const Configuration& configuration, const AppliancePlan& plan,
                          std::vector<Error>* problems);

// With [appliance] user: makes the runtime directory if it is missing, and gives it to the user.
Result<void> give_runtime_directory(const Configuration& configuration);

// Gives up root, but for capabilities that services planned, and gives the user the files of
// `pool`, which it hands out. Requires: check_appliance_user found no problem; this is the only
// thread.
Result<void> give_up_root(const Configuration& configuration, const AppliancePlan& plan,
                          PinnedPool& pool);

}  // namespace bedplate
