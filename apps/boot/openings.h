// The openings of boot, before it takes anything: listening sockets, files, datagram sockets, the
// socket of those that join. `check` opens the same, by the same function, and closes it again. So
// both find the same problems, and report all of them at once.
#pragma once

#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "apps/services/listeners.h"
#include "apps/services/planned_files.h"
#include "pinned_pool/join/join_socket.h"
#include "platform/file.h"

namespace bedplate {

struct Openings {
  std::vector<std::vector<Listeners>> listeners;  // of each service, and each of its keys
  std::vector<OpenedFile> files;
  std::vector<std::vector<Fd>> datagrams;  // of each service, and each of its datagram sockets
  JoinListener joiners;                    // if there are groups
};

enum class OpeningPurpose {
  kCheck,  // nothing is created that stays, nothing is taken over from the service manager
  kBoot,
};

// Appends an error to `problems` for each that cannot be opened. Requires: the appliance's name is
// nobody else's. Ownership: `plan` outlives what is returned.
Openings open_all(const Configuration& configuration, const AppliancePlan& plan,
                  OpeningPurpose purpose, std::vector<Error>* problems);

}  // namespace bedplate
