// A source of datagram sockets other than the kernel's. A service provides it, under a name that
// the configuration gives it, and other services open their sockets on it
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

  // Plans a socket on `shard`, an index among [[shard]]. Called before the plan() of the service
  // that provides the network, and again before each further plan(). Errors (kConfiguration): the
  // network can have no socket on that shard.
  virtual Result<void> plan_socket(uint32_t shard, const DatagramShape& shape) = 0;

  // Makes a planned socket. Called after the create() of the service that provides the network.
  // Ownership: the network's, for ever. Errors (kSystem): there is no such socket.
  virtual Result<DatagramSocket*> make_socket(uint32_t shard, const DatagramShape& shape) = 0;

  // Whether it can have sockets on `shard`. A service that chooses the shards of its sockets asks
  // in its plan().
  virtual bool is_on(uint32_t /*shard*/) const noexcept { return true; }
};

}  // namespace bedplate
