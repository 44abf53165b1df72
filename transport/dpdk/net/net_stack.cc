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
  if (options.address_count > NetOptions::kAddressCountMax) return "a port has up to 16 addresses";
  for (uint32_t i = 0; i < options.address_count; ++i) {
    const IpPrefix& one = options.addresses[i];
    if (one.family != AF_INET && one.family != AF_INET6) return "an address is missing";
    if (is_multicast(one) || is_loopback(one) || is_unspecified(one) || is_limited_broadcast(one)) {
      return "an address is none that a station can have";
    }
    if (one.prefix_bits == 0 || one.prefix_bits > one.byte_count() * 8) {
      return "a prefix has 1 to 32 bits, or 128";
    }
    for (uint32_t k = 0; k < i; ++k) {
      if (is_same(one, options.addresses[k])) return "an address is there twice";
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
    if (gateway.family != family) return "a gateway is of the other family";
    if (!is_on_link(gateway)) return "a gateway is in none of the port's networks";
  }
  if (options.vlan > 4094) return "a VLAN is 1 to 4094, or 0 for none";
  if (!is_in(options.socket_count_max, 1, 4096)) return "it has 1 to 4096 sockets";
  if (!is_in(options.membership_count_max, 32, 4096)) return "it has 32 to 4096 memberships";
  if (!is_in(options.neighbour_count_max, 16, 4096)) return "it has 16 to 4096 neighbours";
  if (!is_in(options.waiting_count_max, 8, 16384)) return "8 to 16384 datagrams of it wait";
  if (!is_in(options.path_count_max, 1, 4096)) return "it has 1 to 4096 paths";
  if (options.shared != nullptr && options.queue_index >= options.shared->queue_count()) {
    return "it has no such queue";
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
      link_local_(link_local_of(queue.mac())) {
  BP_ASSERT(check(options) == nullptr);
  for (uint32_t i = 0; i < options.address_count; ++i) routes_.add(options.addresses[i]);
  IpPrefix prefix{link_local_};
  prefix.prefix_bits = 64;
  if (!routes_.is_own(link_local_)) routes_.add(prefix);
  routes_.set_gateway(AF_INET, options.gateway4);
  routes_.set_gateway(AF_INET6, options.gateway6);
  join_solicited_nodes();
}

NetStack::~NetStack() {
  for (uint32_t i = 0; i < looped_count_; ++i) rte_pktmbuf_free(looped_[i]);
  for (uint32_t i = 0; i < sockets_.count_max(); ++i) BP_ASSERT(sockets_.at(i) == nullptr);
}

// RFC 4861, 7.2.1: a switch that snoops MLD passes solicitations only to groups that were joined.
// ff02::1 needs no report, but the port must hear it.
void NetStack::join_solicited_nodes() noexcept {
  for (uint32_t i = 0; i < routes_.address_count(); ++i) {
    if (routes_.address(i).family != AF_INET6) continue;
    const int outcome =
        change_membership(true, own_groups_, solicited_node(routes_.address(i)), {});
    BP_ASSERT(outcome == 0 || outcome == EADDRINUSE);
  }
  const int outcome = change_membership(true, own_groups_, link_group(1), {});
  BP_ASSERT(outcome == 0);
}

bool NetStack::is_valid() const noexcept {
  if (!neighbours_.is_valid() || !memberships_.is_valid() || !sockets_.is_valid()) return false;
  for (uint32_t i = 0; i < sockets_.count_max(); ++i) {
    const PortDatagramSocket* socket = sockets_.at(i);
    if (socket == nullptr) continue;
    if (!socket->is_open() || !socket->is_valid()) return false;
    if (socket->is_pending() && !has_pending_) return false;
    if (socket->wants_room() && !wants_room_) return false;
  }
  if (!discovery_.is_valid() || !reports_.is_valid() || !paths_.is_valid()) return false;
  return looped_count_ <= kLoopedMax;
}

bool NetStack::is_port_taken(const PortDatagramSocket& socket, uint16_t port) const noexcept {
  for (const PortDatagramSocket* one = sockets_.first(port); one != nullptr;
       one = one->link().next) {
    if (one != &socket && one->collides_with(socket, port)) return true;
  }
  return false;
}

int NetStack::choose_port(PortDatagramSocket& socket) noexcept {
  constexpr uint32_t kCount = 65536 - kFirstFreePort;
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint16_t port = next_free_port_;
    next_free_port_ = port == 65535 ? kFirstFreePort : static_cast<uint16_t>(port + 1);
    // Answers to a port that another shard has could go to that shard.
    const bool is_others = options_.shared != nullptr && options_.shared->owners(port) != 0;
    if (is_others || is_port_taken(socket, port)) continue;
    socket.set_local_port(port);
    return 0;
  }
  return EADDRINUSE;
}

int NetStack::insert(PortDatagramSocket& socket) noexcept {
  BP_ASSERT(!socket.is_open());
  const DatagramAddress local = socket.local();
  if (!is_unspecified(local.ip) && !is_multicast(local.ip) && !routes_.is_own(local.ip) &&
      !routes_.is_broadcast(local.ip)) {
    return EADDRNOTAVAIL;
  }
  if (local.port != 0 && is_port_taken(socket, local.port)) return EADDRINUSE;
  if (local.port == 0) {
    if (const int outcome = choose_port(socket); outcome != 0) return outcome;
  }
  BP_DCHECK(!is_port_taken(socket, socket.local().port));
  if (!sockets_.insert(socket)) return ENOBUFS;
  if (options_.shared != nullptr) {
    options_.shared->set_owner(PortShared::bucket_of(socket.local().port), options_.queue_index,
                               true);
  }
  return 0;
}

void NetStack::remove(PortDatagramSocket& socket) noexcept {
  sockets_.remove(socket);
  if (options_.shared == nullptr) return;
  const uint32_t bucket = PortShared::bucket_of(socket.local().port);
  for (uint32_t i = 0; i < sockets_.count_max(); ++i) {
    const PortDatagramSocket* other = sockets_.at(i);
    if (other != nullptr && PortShared::bucket_of(other->local().port) == bucket) return;
  }
  options_.shared->set_owner(bucket, options_.queue_index, false);
}

int NetStack::change_membership(bool is_join, Memberships::Holder& holder, const IpAddress& group,
                                const IpAddress& source) noexcept {
  int error_number = 0;
  LinkGroup* its = is_join ? memberships_.join(holder, group, source, error_number)
                           : memberships_.leave(holder, group, source, error_number);
  if (its == nullptr) return error_number;
  reports_.changed(*its);
  return 0;
}

void NetStack::leave_all(Memberships::Holder& holder) noexcept {
  while (LinkGroup* its = memberships_.leave_any(holder)) reports_.changed(*its);
}

}  // namespace bedplate
