#include "transport/dpdk/net/net_stack.h"

#include <algorithm>
#include <cerrno>

#include "platform/assert.h"
#include "transport/dpdk/net/port_datagram_socket.h"

namespace bedplate {

const char* NetStack::check(const NetOptions& options) noexcept {
  const auto is_in = [](uint32_t value, uint32_t low, uint32_t high) {
    return value >= low && value <= high;
  };
  if (options.address_count > NetOptions::kAddressCountMax) {
    return "a port can have up to 16 addresses";
  }
  for (uint32_t i = 0; i < options.address_count; ++i) {
    const IpPrefix& one = options.addresses[i];
    if (one.family != AF_INET && one.family != AF_INET6) return "an address is missing";
    if (is_multicast(one) || is_loopback(one) || is_unspecified(one) || is_limited_broadcast(one)) {
      return "an address is not valid for a station";
    }
    if (one.prefix_bits == 0 || one.prefix_bits > one.byte_count() * 8) {
      return "a prefix must have 1 to 32 bits, or up to 128 with IPv6";
    }
    for (uint32_t k = 0; k < i; ++k) {
      if (is_same(one, options.addresses[k])) return "an address is listed twice";
    }
  }
  const auto is_on_link = [&](const IpAddress& gateway) {
    return is_link_local(gateway) ||
           std::any_of(options.addresses, options.addresses + options.address_count,
                       [&](const IpPrefix& one) { return one.contains(gateway); });
  };
  for (const int family : {AF_INET, AF_INET6}) {
    const IpAddress& gateway = family == AF_INET ? options.gateway4 : options.gateway6;
    if (gateway.family == 0) continue;
    if (gateway.family != family) return "a gateway has the wrong address family";
    if (!is_on_link(gateway)) return "a gateway is not in any of the port's networks";
  }
  if (options.vlan > 4094) return "a VLAN must be 1 to 4094, or 0 for none";
  if (!is_in(options.socket_count_max, 1, 4096)) return "it can have 1 to 4096 sockets";
  if (!is_in(options.membership_count_max, 32, 4096)) return "it can have 32 to 4096 memberships";
  if (!is_in(options.neighbour_count_max, 16, 4096)) return "it can have 16 to 4096 neighbours";
  if (!is_in(options.waiting_count_max, 8, 16384)) return "8 to 16384 of its datagrams can wait";
  if (!is_in(options.path_count_max, 1, 4096)) return "it can have 1 to 4096 paths";
  if (options.shared != nullptr && options.queue_index >= options.shared->queue_count()) {
    return "the queue does not exist";
  }
  return nullptr;
}

NetStack::NetStack(FrameQueue& queue, const NetOptions& options)
    : options_(options),
      counters_(options.counters != nullptr ? options.counters : &own_counters_),
      sender_(queue, *counters_, options.vlan),
      datagram_sender_(sender_, *counters_),
      neighbours_(*this, {.entry_count = options.neighbour_count_max,
                          .waiting_count = options.waiting_count_max}),
      discovery_(sender_, routes_, neighbours_, *counters_, options.takes_routers),
      memberships_(options.membership_count_max),
      reports_(sender_, routes_, memberships_, *counters_),
      icmp_(sender_, routes_, *counters_),
      paths_(options.path_count_max),
      sockets_(options.socket_count_max),
      others_(options.shared, options.queue_index, *counters_),
      looped_(*counters_),
      route_finder_(routes_, neighbours_, paths_, sender_.mtu_bytes(), *counters_),
      ports_(sockets_, routes_, others_),
      groups_(memberships_, reports_),
      parts_{.name = options_.name,
             .time = time_,
             .routes = routes_,
             .ports = ports_,
             .groups = groups_,
             .route_finder = route_finder_,
             .neighbours = neighbours_,
             .datagrams = datagram_sender_,
             .frames = sender_,
             .looped = looped_,
             .notes = notes_,
             .counters = *counters_},
      link_local_(link_local_of(queue.mac())) {
  BP_ASSERT(check(options) == nullptr);
  // All of fe80::/64 is on the link (RFC 4861, 5.1), whatever prefix the options give its address.
  for (uint32_t i = 0; i < options.address_count; ++i) {
    if (!is_same(options.addresses[i], link_local_)) routes_.add(options.addresses[i]);
  }
  IpPrefix prefix{link_local_};
  prefix.prefix_bits = 64;
  routes_.add(prefix);
  routes_.set_gateway(AF_INET, options.gateway4);
  routes_.set_gateway(AF_INET6, options.gateway6);
  join_solicited_nodes();
}

NetStack::~NetStack() {
  for (uint32_t i = 0; i < sockets_.count_max(); ++i) BP_ASSERT(sockets_.at(i) == nullptr);
}

// RFC 4861, 7.2.1: a switch that snoops MLD passes solicitations only to groups that were joined.
// ff02::1 needs no report, but the port must receive it.
void NetStack::join_solicited_nodes() noexcept {
  for (uint32_t i = 0; i < routes_.address_count(); ++i) {
    if (routes_.address(i).family != AF_INET6) continue;
    const int outcome = groups_.change(true, own_groups_, solicited_node(routes_.address(i)), {});
    BP_ASSERT(outcome == 0 || outcome == EADDRINUSE);
  }
  const int outcome = groups_.change(true, own_groups_, link_group(1), {});
  BP_ASSERT(outcome == 0);
}

bool NetStack::is_valid() const noexcept {
  if (!neighbours_.is_valid() || !memberships_.is_valid() || !sockets_.is_valid()) return false;
  for (uint32_t i = 0; i < sockets_.count_max(); ++i) {
    const PortDatagramSocket* socket = sockets_.at(i);
    if (socket == nullptr) continue;
    if (!socket->is_open() || !socket->is_valid()) return false;
    if (socket->is_pending() && !notes_.has_pending) return false;
    if (socket->wants_room() && !notes_.wants_room) return false;
  }
  if (!discovery_.is_valid() || !reports_.is_valid() || !paths_.is_valid()) return false;
  return looped_.count() <= LoopedFrames::kCountMax;
}

}  // namespace bedplate
