#include "transport/dpdk/net/route_finder_datapath.h"

#include <cerrno>

#include "platform/assert.h"

namespace bedplate {

int RouteFinder::find(const IpAddress& to, const IpAddress& from, uint64_t now_ns,
                      DatagramRoute& route) noexcept {
  route = {};
  route.mtu_bytes = link_mtu_bytes_;
  if (routes_.is_broadcast(to)) return EACCES;
  if (is_loopback(to) || is_unspecified(to)) return ENETUNREACH;
  route.is_own = routes_.is_own(to);
  route.from = from.family != 0 ? from : route.is_own ? to : routes_.source_for(to);
  if (route.from.family == 0) return ENETUNREACH;
  if (route.is_own) return 0;
  if (is_multicast(to)) {
    route.mac = multicast_mac(to);
    return 0;
  }
  const IpAddress hop = routes_.next_hop(to);
  if (hop.family == 0) return ENETUNREACH;
  Neighbour* neighbour = neighbours_.use(hop, now_ns);
  if (neighbour == nullptr) {
    counters_.neighbours_full.add(1);
    return ENOBUFS;
  }
  route.mtu_bytes = paths_.mtu_bytes(to, route.mtu_bytes, now_ns);
  BP_DCHECK(route.from.family == to.family);
  BP_DCHECK(route.mtu_bytes <= link_mtu_bytes_);
  if (neighbour->has_mac()) {
    route.mac = neighbour->mac;
  } else {
    route.waits_for = neighbour;
  }
  return 0;
}

}  // namespace bedplate
