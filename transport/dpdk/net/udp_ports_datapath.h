// The UDP ports of a shard's sockets: binds sockets to ports, and tells the other shards which
// ports are bound.
//
// Invariants: 1. A bound socket is in the socket table, and does not collide with another socket of
// its port. (bind) 2. The other shards see a bucket of ports as this shard's if it has a socket in
// the bucket, and only then. (bind, release)
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

  // Binds `socket` to its local address; chooses a port if the address has none. A chosen port has
  // no socket on another shard; a given port may have one. Returns 0 or an errno value:
  // EADDRNOTAVAIL (not an address of the stack), EADDRINUSE, ENOBUFS (too many sockets). Requires:
  // it is not open.
  int bind(PortDatagramSocket& socket) noexcept;
  // Requires: it is bound.
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
