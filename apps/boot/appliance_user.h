// The user that the runtime becomes once all memory is taken: [appliance] user.
//
// The change comes before any thread starts and any device is opened for use, so all threads have
// the same credentials. Otherwise Linux refuses requests that are sent to an RDMA device by
// write().
#pragma once

#include <optional>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/change_user.h"
#include "platform/user.h"

namespace bedplate {

// Returns nothing if the configuration names no user, or if this process already runs as that user.
// Errors: no such user; the user is root; this process cannot become that user; this is an image's
// first process.
Result<std::optional<User>> find_appliance_user(const Configuration& configuration);

// Calls `look` with the rights that the appliance has after it has given up root: in a child
// process, if root will be given up. Does not call it if root cannot be given up;
// check_appliance_user reports why.
void look_as_appliance(const Configuration& configuration, const AppliancePlan& plan,
                       const Look& look, std::vector<Error>* problems);

// Appends the problems that keep this process from becoming that user, and those that keep the user
// from making and removing the appliance's files. Tries it, in a child process.
void check_appliance_user(const Configuration& configuration, const AppliancePlan& plan,
                          std::vector<Error>* problems);

// With [appliance] user: if the runtime directory is missing, makes it and gives it to the user. An
// existing directory stays as it is. Reports no error if the directory cannot be made:
// NameLock::take() does. Errors: it cannot be given to the user.
Result<void> give_runtime_directory(const Configuration& configuration);

// Gives up root, except for capabilities that services planned. Does nothing without [appliance]
// user. Lifts the limit of locked memory; if the kernel refuses, the user keeps CAP_IPC_LOCK. If
// processes may join, gives the user the files of `pool`, which the appliance hands out to them.
// Requires: check_appliance_user found no problem; this is the only thread.
Result<void> give_up_root(const Configuration& configuration, const AppliancePlan& plan,
                          PinnedPool& pool);

}  // namespace bedplate
