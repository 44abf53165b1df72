// The UDP ports of a shard's sockets: binds sockets to ports, and tells the other shards which
// ports are bound.
//
// Invariants: 1. A bound socket is in the socket table, and is distinguishable from the others of
// its port. (bind) 2. The other shards see a bucket of ports as this shard's exactly if it has a
// socket in the bucket. (bind, release)
#pragma once

#include <cstdint>

#include "transport/dpdk/net/other_shards_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"
#include "transport/dpdk/net/socket_table_datapath.h"

namespace bedplate {

// Threads: the shard's, but for calls before the start.
class UdpPorts {
 public:
  // The arguments outlive it.
  UdpPorts(SocketTable& sockets, const Routes& routes, OtherShards& others) noexcept
      : sockets_(sockets), routes_(routes), others_(others) {}

  // Binds `socket` to its local address; chooses a port if the address has none. Returns 0 or an
  // errno value. Requires: it is not open.
  int bind(PortDatagramSocket& socket) noexcept;
  void release(PortDatagramSocket& socket) noexcept;

  // Whether a socket of `port`, here or on another shard, may have joined the group.
  bool has_listeners(const IpAddress& group, uint16_t port) const noexcept;

 private:
  static constexpr uint16_t kFirstFree = 49152;  // RFC 6335, 6

  bool is_taken(const PortDatagramSocket& socket, uint16_t port) const noexcept;
  int choose(PortDatagramSocket& socket) noexcept;

  SocketTable& sockets_;
  const Routes& routes_;
  OtherShards& others_;
  uint16_t next_free_ = kFirstFree;
};

}  // namespace bedplate
