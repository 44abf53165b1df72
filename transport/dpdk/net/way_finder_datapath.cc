#include "transport/dpdk/net/way_finder_datapath.h"

#include <cerrno>

#include "platform/assert.h"

namespace bedplate {

int WayFinder::find(const IpAddress& to, const IpAddress& from, uint64_t now_ns,
                    DatagramWay& way) noexcept {
  way = {};
  way.mtu_bytes = link_mtu_bytes_;
  if (routes_.is_broadcast(to)) return EACCES;
  if (is_loopback(to) || is_unspecified(to)) return ENETUNREACH;
  way.is_own = routes_.is_own(to);
  way.from = from.family != 0 ? from : way.is_own ? to : routes_.source_for(to);
  if (way.from.family == 0) return ENETUNREACH;
  if (way.is_own) return 0;
  if (is_multicast(to)) {
    way.mac = multicast_mac(to);
    return 0;
  }
  const IpAddress hop = routes_.next_hop(to);
  if (hop.family == 0) return ENETUNREACH;
  Neighbour* neighbour = neighbours_.use(hop, now_ns);
  if (neighbour == nullptr) {
    counters_.neighbours_full.add(1);
    return ENOBUFS;
  }
  way.mtu_bytes = paths_.mtu_bytes(to, way.mtu_bytes, now_ns);
  BP_DCHECK(way.from.family == to.family);
  BP_DCHECK(way.mtu_bytes <= link_mtu_bytes_);
  if (neighbour->has_mac()) {
    way.mac = neighbour->mac;
  } else {
    way.waits_for = neighbour;
  }
  return 0;
}

}  // namespace bedplate
