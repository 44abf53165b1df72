// Finds the route of a datagram: its source address, the MAC of its next hop, and the path's MTU.
//
// If the next hop's MAC is unknown, this asks the station, and the frame must wait for the answer
// (Neighbours::wait).
#pragma once

#include <cstdint>

#include "transport/dpdk/net/neighbours_datapath.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/net/path_mtus_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"

namespace bedplate {

struct DatagramRoute {
  IpAddress from;
  uint32_t mtu_bytes = 0;
  bool is_own = false;      // to this port itself: no frame leaves
  rte_ether_addr mac = {};  // the next hop's, or the group's; not set if is_own or waits_for
  // The neighbour whose MAC is unknown, or nullptr. Valid until the next find() or
  // Neighbours::advance().
  Neighbour* waits_for = nullptr;
};

// Threads: the shard's.
class RouteFinder {
 public:
  // The arguments outlive it. `link_mtu_bytes`: the MTU of the port's link.
  RouteFinder(const Routes& routes, Neighbours& neighbours, const PathMtus& paths,
              uint32_t link_mtu_bytes, NetCounters& counters) noexcept
      : routes_(routes),
        neighbours_(neighbours),
        paths_(paths),
        link_mtu_bytes_(link_mtu_bytes),
        counters_(counters) {}

  // `from`: none, or one of the port's own addresses, of the family of `to`. Returns 0 or an errno
  // value: EACCES (a broadcast), ENETUNREACH, ENOBUFS (the table of neighbours is full). After an
  // error `route` is undefined.
  int find(const IpAddress& to, const IpAddress& from, uint64_t now_ns,
           DatagramRoute& route) noexcept;

 private:
  const Routes& routes_;
  Neighbours& neighbours_;
  const PathMtus& paths_;
  uint32_t link_mtu_bytes_;
  NetCounters& counters_;
};

}  // namespace bedplate
