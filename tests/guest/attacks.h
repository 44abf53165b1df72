// Attacks of a hostile host on an appliance that knows its name, over the network.
#pragma once

#include <cstdint>
#include <string>

#include "transport/registration.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate::traffic {

struct AttackOptions {
  const VerbsDevice* device = nullptr;
  const KeyTable* keys = nullptr;
  SocketAddress address = {};   // where the victim listens
  std::string name;             // the name that the attacker uses
  uint64_t export_address = 0;  // an export of the victim's
  uint64_t export_bytes = 0;
  uint32_t key = 0;
};

// Runs the attacks of a kind: records, flood, messages, window, memory. Prints a line for each, and
// returns an exit code: 0 if each was refused as it should be.
int attack(const std::string& kind, const AttackOptions& options);

}  // namespace bedplate::traffic
