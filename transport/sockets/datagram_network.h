// A source of datagram sockets that are not the kernel's: a service has one, under a name that the
// configuration gives it, and other services open their sockets on it
// (ServicePlan::datagram_socket).
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

// Threads: the main thread, before the seal.
class DatagramNetwork {
 public:
  virtual ~DatagramNetwork() = default;

  // A socket will be wanted on `shard`, an index among [[shard]]. Called before the plan() of the
  // service that has the network, and again before each further plan(). Errors (kConfiguration):
  // there can be none there.
  virtual Result<void> plan_socket(uint32_t shard, const DatagramShape& shape) = 0;

  // One of those that were planned. Called after the create() of the service that has the network.
  // Ownership: the network's, for ever. Errors (kSystem): there is none.
  virtual Result<DatagramSocket*> make_socket(uint32_t shard, const DatagramShape& shape) = 0;
};

}  // namespace bedplate
