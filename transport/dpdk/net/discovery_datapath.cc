#include "transport/dpdk/net/discovery_datapath.h"

#include <netinet/icmp6.h>
#include <rte_arp.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr rte_ether_addr kAllStations = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
constexpr uint8_t kDiscoveryHops = 255;  // RFC 4861: no router has forwarded it
constexpr uint32_t kOptionUnit = 8;
constexpr uint8_t kFlagSolicited = 0x40;
constexpr uint8_t kFlagOverride = 0x20;
const IpAddress kAllNodes = link_group(1);
const IpAddress kAllRouters = link_group(2);

// A neighbour solicitation or advertisement, with its one option: a MAC address.
struct NeighbourMessage {
  uint8_t type;
  uint8_t code;
  uint16_t checksum;
  uint8_t flags;
  uint8_t reserved[3];
  uint8_t target[16];
  uint8_t option_type;
  uint8_t option_units;
  rte_ether_addr mac;
};
static_assert(sizeof(NeighbourMessage) == sizeof(nd_neighbor_solicit) + kOptionUnit);

// A router solicitation.
struct RouterQuestion {
  uint8_t type;
  uint8_t code;
  uint16_t checksum;
  uint32_t reserved;
  uint8_t option_type;
  uint8_t option_units;
  rte_ether_addr mac;
};
static_assert(sizeof(RouterQuestion) == sizeof(nd_router_solicit) + kOptionUnit);

}  // namespace

bool Discovery::is_valid() const noexcept {
  if (router_asked_count_ > kRouterAskMax) return false;
  if (!takes_routers_) {
    return router_end_ns_ == 0 && router_asked_count_ == 0 && deadline_ns_ == kNever;
  }
  if (router_end_ns_ == 0) return true;
  return deadline_ns_ == router_end_ns_ && routes_.gateway(AF_INET6).family == AF_INET6;
}

void Discovery::start(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  for (uint32_t i = 0; i < routes_.address_count(); ++i) announce(routes_.address(i));
  if (takes_routers_ && routes_.gateway(AF_INET6).family == 0) ask_for_routers(now_ns);
}

void Discovery::announce(const IpAddress& own) noexcept {
  BP_DCHECK(routes_.is_own(own) && !is_unspecified(own));
  if (own.family == AF_INET) {
    send_arp(RTE_ARP_OP_REQUEST, own, own, nullptr);
  } else {
    advertise({own, kAllNodes, multicast_mac(kAllNodes), kFlagOverride});
  }
}

void Discovery::ask(const IpAddress& target, const rte_ether_addr* known) noexcept {
  BP_DCHECK(target.family != 0 && !is_multicast(target));
  if (target.family == AF_INET) {
    send_arp(RTE_ARP_OP_REQUEST, routes_.source_for(target), target, known);
  } else {
    solicit(target, known);
  }
}

// ---- ARP ----------------------------------------------------------------------------------------

void Discovery::send_arp(uint16_t operation, const IpAddress& from, const IpAddress& target,
                         const rte_ether_addr* to) noexcept {
  if (from.family != AF_INET) return;
  BP_DCHECK(routes_.is_own(from) && "all who hear it believe whose address this is");
  BP_DCHECK(target.family == AF_INET);
  rte_mbuf* frame = sender_.make(sizeof(rte_arp_hdr));
  if (frame == nullptr) return;
  rte_arp_hdr message = {};
  message.arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER);
  message.arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
  message.arp_hlen = RTE_ETHER_ADDR_LEN;
  message.arp_plen = sizeof(uint32_t);
  message.arp_opcode = rte_cpu_to_be_16(operation);
  message.arp_data.arp_sha = sender_.mac();
  message.arp_data.arp_sip = ipv4_of(from);
  if (to != nullptr) message.arp_data.arp_tha = *to;
  message.arp_data.arp_tip = ipv4_of(target);
  std::memcpy(rte_pktmbuf_mtod(frame, uint8_t*), &message, sizeof message);
  sender_.put_ethernet(frame, RTE_ETHER_TYPE_ARP, to != nullptr ? *to : kAllStations);
  sender_.send(frame);
}

PacketDrop Discovery::take_arp(const ParsedPacket& packet, bool may_answer,
                               uint64_t now_ns) noexcept {
  BP_DCHECK(packet.kind == PacketKind::kArp && packet.message_bytes >= sizeof(rte_arp_hdr));
  rte_arp_hdr message;
  std::memcpy(&message, packet.message, sizeof message);
  const uint16_t operation = rte_be_to_cpu_16(message.arp_opcode);
  const rte_ether_addr station = message.arp_data.arp_sha;
  const IpAddress from = ipv4_address(message.arp_data.arp_sip);
  const IpAddress target = ipv4_address(message.arp_data.arp_tip);
  if (message.arp_hardware != rte_cpu_to_be_16(RTE_ARP_HRD_ETHER) ||
      message.arp_protocol != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
      message.arp_hlen != RTE_ETHER_ADDR_LEN || message.arp_plen != sizeof(uint32_t) ||
      (operation != RTE_ARP_OP_REQUEST && operation != RTE_ARP_OP_REPLY) ||
      !rte_is_valid_assigned_ether_addr(&station) || is_multicast(from) || is_loopback(from) ||
      routes_.is_broadcast(from)) {
    return PacketDrop::kArp;
  }
  if (routes_.is_own(from)) {
    if (may_answer && !rte_is_same_ether_addr(&station, &sender_.mac())) {
      note_conflict(from, now_ns);
    }
    return PacketDrop::kNone;
  }
  const bool is_answer = operation == RTE_ARP_OP_REPLY &&
                         rte_is_same_ether_addr(&packet.to_mac, &sender_.mac()) &&
                         neighbours_.is_asked(from);
  if (!is_unspecified(from)) {
    neighbours_.learn(from, station, {.is_solicited = is_answer, .is_override = true}, now_ns);
  }
  if (may_answer && operation == RTE_ARP_OP_REQUEST && routes_.is_own(target)) {
    send_arp(RTE_ARP_OP_REPLY, target, from, &station);
  }
  return PacketDrop::kNone;
}

// Announces the address again, but not too often: two stations that defend one address would never
// stop (RFC 5227, 2.4).
void Discovery::note_conflict(const IpAddress& own, uint64_t now_ns) noexcept {
  BP_DCHECK(routes_.is_own(own));
  uint64_t& next_defence_ns = next_defence_ns_[routes_.index_of(own)];
  BP_DCHECK(next_defence_ns <= now_ns + kDefendNs);
  counters_.address_conflicts.add(1);
  if (now_ns < next_defence_ns) return;
  next_defence_ns = now_ns + kDefendNs;
  announce(own);
}

// ---- Neighbour discovery ------------------------------------------------------------------------

void Discovery::solicit(const IpAddress& target, const rte_ether_addr* known) noexcept {
  BP_DCHECK(target.family == AF_INET6);
  const IpFields fields = {.from = routes_.source_for(target),
                           .to = known != nullptr ? target : solicited_node(target),
                           .protocol = IPPROTO_ICMPV6,
                           .hops = kDiscoveryHops};
  if (fields.from.family != AF_INET6) return;
  BP_DCHECK(routes_.is_own(fields.from));
  rte_mbuf* frame = sender_.make(sizeof(NeighbourMessage));
  if (frame == nullptr) return;
  NeighbourMessage message = {};
  message.type = ND_NEIGHBOR_SOLICIT;
  std::memcpy(message.target, target.bytes, sizeof message.target);
  message.option_type = ND_OPT_SOURCE_LINKADDR;
  message.option_units = 1;
  message.mac = sender_.mac();
  std::memcpy(rte_pktmbuf_mtod(frame, uint8_t*), &message, sizeof message);
  sender_.put_icmp6(frame, fields, known != nullptr ? *known : multicast_mac(fields.to));
  sender_.send(frame);
}

void Discovery::advertise(const Advertisement& advertised) noexcept {
  BP_DCHECK(routes_.is_own(advertised.target) && advertised.to.family == AF_INET6);
  rte_mbuf* frame = sender_.make(sizeof(NeighbourMessage));
  if (frame == nullptr) return;
  NeighbourMessage message = {};
  message.type = ND_NEIGHBOR_ADVERT;
  message.flags = advertised.flags;
  std::memcpy(message.target, advertised.target.bytes, sizeof message.target);
  message.option_type = ND_OPT_TARGET_LINKADDR;
  message.option_units = 1;
  message.mac = sender_.mac();
  std::memcpy(rte_pktmbuf_mtod(frame, uint8_t*), &message, sizeof message);
  const IpFields ip = {.from = advertised.target,
                       .to = advertised.to,
                       .protocol = IPPROTO_ICMPV6,
                       .hops = kDiscoveryHops};
  sender_.put_icmp6(frame, ip, advertised.mac);
  sender_.send(frame);
}

void Discovery::ask_for_routers(uint64_t now_ns) noexcept {
  BP_ASSERT(takes_routers_ && router_asked_count_ < kRouterAskMax);
  ++router_asked_count_;
  deadline_ns_ = router_asked_count_ < kRouterAskMax ? now_ns + kRouterAskNs : kNever;
  rte_mbuf* frame = sender_.make(sizeof(RouterQuestion));
  if (frame == nullptr) return;
  RouterQuestion message = {};
  message.type = ND_ROUTER_SOLICIT;
  message.option_type = ND_OPT_SOURCE_LINKADDR;
  message.option_units = 1;
  message.mac = sender_.mac();
  std::memcpy(rte_pktmbuf_mtod(frame, uint8_t*), &message, sizeof message);
  const IpFields fields = {.from = routes_.source_for(kAllRouters),
                           .to = kAllRouters,
                           .protocol = IPPROTO_ICMPV6,
                           .hops = kDiscoveryHops};
  sender_.put_icmp6(frame, fields, multicast_mac(kAllRouters));
  sender_.send(frame);
}

void Discovery::advance(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  if (now_ns < deadline_ns_) return;
  deadline_ns_ = kNever;
  if (router_end_ns_ != 0) {
    router_end_ns_ = 0;
    routes_.set_gateway(AF_INET6, {});
    router_asked_count_ = 0;
  }
  ask_for_routers(now_ns);
}

// RFC 4861, 4.6: each option has a length over 0; unknown ones are skipped.
Discovery::Options Discovery::read_options(const ParsedPacket& packet, uint32_t offset,
                                           uint8_t mac_type) noexcept {
  BP_DCHECK(offset <= packet.message_bytes && "what comes before them is all there");
  Options options;
  while (offset < packet.message_bytes) {
    if (packet.message_bytes - offset < kOptionUnit) return options;
    const uint8_t* option = packet.message + offset;
    const uint32_t bytes = option[1] * kOptionUnit;
    if (bytes == 0 || bytes > packet.message_bytes - offset) return options;
    if (option[0] == mac_type && option[1] == 1) {
      std::memcpy(&options.mac, option + 2, sizeof options.mac);
      options.has_mac = true;
    }
    offset += bytes;
  }
  options.is_good = !options.has_mac || rte_is_valid_assigned_ether_addr(&options.mac);
  return options;
}

PacketDrop Discovery::take_icmp6(const ParsedPacket& packet, bool may_answer,
                                 uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(packet.kind == PacketKind::kIcmp6 && packet.message_bytes >= sizeof(icmp6_hdr));
  if (packet.hops != kDiscoveryHops || packet.message[1] != 0) return PacketDrop::kNeighbour;
  switch (packet.message[0]) {
    case ND_NEIGHBOR_SOLICIT: return take_solicitation(packet, may_answer, now_ns);
    case ND_NEIGHBOR_ADVERT: return take_advertisement(packet, may_answer, now_ns);
    case ND_ROUTER_ADVERT: return take_router(packet, now_ns);
    default: return PacketDrop::kNone;  // for routers; or a redirect, which is not followed
  }
}

// RFC 4861, 7.1.1 and 7.2.3; from ::, RFC 4862, 5.4.3.
PacketDrop Discovery::take_solicitation(const ParsedPacket& packet, bool may_answer,
                                        uint64_t now_ns) noexcept {
  if (packet.message_bytes < sizeof(nd_neighbor_solicit)) return PacketDrop::kNeighbour;
  const Options options = read_options(packet, sizeof(nd_neighbor_solicit), ND_OPT_SOURCE_LINKADDR);
  const IpAddress target =
      ipv6_address(packet.message + offsetof(nd_neighbor_solicit, nd_ns_target));
  if (!options.is_good || is_multicast(target)) return PacketDrop::kNeighbour;
  const bool is_probe = is_unspecified(packet.from);
  if (is_probe && (options.has_mac || !is_same(packet.to, solicited_node(target)))) {
    return PacketDrop::kNeighbour;
  }
  if (!is_probe && options.has_mac) {
    neighbours_.learn(packet.from, options.mac, {.is_override = true}, now_ns);
  }
  if (!may_answer || !routes_.is_own(target)) return PacketDrop::kNone;
  if (is_probe) {
    counters_.address_conflicts.add(1);
    advertise({target, kAllNodes, multicast_mac(kAllNodes), kFlagOverride});
  } else {
    advertise({target, packet.from, options.has_mac ? options.mac : packet.from_mac,
               kFlagSolicited | kFlagOverride});
  }
  return PacketDrop::kNone;
}

// RFC 4861, 7.1.2 and 7.2.5.
PacketDrop Discovery::take_advertisement(const ParsedPacket& packet, bool may_answer,
                                         uint64_t now_ns) noexcept {
  if (packet.message_bytes < sizeof(nd_neighbor_advert)) return PacketDrop::kNeighbour;
  const Options options = read_options(packet, sizeof(nd_neighbor_advert), ND_OPT_TARGET_LINKADDR);
  const IpAddress target =
      ipv6_address(packet.message + offsetof(nd_neighbor_advert, nd_na_target));
  const uint8_t flags = packet.message[4];
  const bool is_solicited = (flags & kFlagSolicited) != 0;
  if (!options.is_good || is_multicast(target) || is_unspecified(packet.from) ||
      (is_multicast(packet.to) && is_solicited)) {
    return PacketDrop::kNeighbour;
  }
  if (routes_.is_own(target)) {
    if (may_answer) note_conflict(target, now_ns);
    return PacketDrop::kNone;
  }
  // A station that was asked at its known MAC address may omit the address in its answer.
  const Neighbour* entry = neighbours_.find(target);
  if (entry == nullptr || (!options.has_mac && !entry->has_mac())) return PacketDrop::kNone;
  const rte_ether_addr mac = options.has_mac ? options.mac : entry->mac;
  neighbours_.learn(target, mac,
                    {.is_solicited = is_solicited && neighbours_.is_asked(target),
                     .is_override = (flags & kFlagOverride) != 0},
                    now_ns);
  return PacketDrop::kNone;
}

// RFC 4861, 6.1.2 and 6.3.4. Follows the first router that announces itself, until its lifetime
// ends.
PacketDrop Discovery::take_router(const ParsedPacket& packet, uint64_t now_ns) noexcept {
  if (packet.message_bytes < sizeof(nd_router_advert) || !is_link_local(packet.from)) {
    return PacketDrop::kNeighbour;
  }
  const Options options = read_options(packet, sizeof(nd_router_advert), ND_OPT_SOURCE_LINKADDR);
  if (!options.is_good) return PacketDrop::kNeighbour;
  if (options.has_mac) {
    neighbours_.learn(packet.from, options.mac, {.is_override = true}, now_ns);
  }
  const IpAddress& gateway = routes_.gateway(AF_INET6);
  const bool is_present = is_same(gateway, packet.from);
  // A configured gateway stays.
  if (!takes_routers_ || (gateway.family != 0 && (!is_present || router_end_ns_ == 0))) {
    return PacketDrop::kNone;
  }
  uint16_t lifetime_seconds;
  std::memcpy(&lifetime_seconds, packet.message + offsetof(nd_router_advert, nd_ra_hdr) + 6,
              sizeof lifetime_seconds);
  const uint64_t life_ns = rte_be_to_cpu_16(lifetime_seconds) * uint64_t{1'000'000'000};
  if (life_ns == 0 && !is_present) return PacketDrop::kNone;
  routes_.set_gateway(AF_INET6, packet.from);
  router_end_ns_ = deadline_ns_ = now_ns + life_ns;  // at once, if the lifetime is 0
  return PacketDrop::kNone;
}

}  // namespace bedplate
