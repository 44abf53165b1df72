// Opens what boot needs before it takes memory: listening sockets, files, datagram sockets, the
// socket for processes that join. `check` opens the same, by the same function, and closes it
// again. So both find the same problems, and report all of them at once.
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
  std::vector<std::vector<Listeners>> listeners;  // for each service, for each of its keys
  std::vector<OpenedFile> files;
  // For each service, for each datagram socket; not open if the socket is on a network (a port).
  std::vector<std::vector<Fd>> datagrams;
  JoinListener joiners;  // open if there are groups
};

enum class OpeningPurpose {
  kCheck,  // creates nothing that stays, takes over nothing from the service manager
  kBoot,
};

// Appends an error to `problems` for each that cannot be opened. Requires: no other process can
// hold the appliance's name (NameLock::is_nobody_elses). Lifetime: `plan` outlives the result.
Openings open_all(const Configuration& configuration, const AppliancePlan& plan,
                  OpeningPurpose purpose, std::vector<Error>* problems);

}  // namespace bedplate
