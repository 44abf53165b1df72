// NetStack's data path.
#include <algorithm>
#include <cerrno>

#include <netinet/icmp6.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "platform/assert.h"
#include "transport/dpdk/net/net_stack.h"
#include "transport/dpdk/net/port_datagram_socket.h"

namespace bedplate {
namespace {

constexpr uint8_t kMldFirst = 130;  // queries, reports and leaves of MLD are 130 to 132
constexpr uint8_t kMldLast = 132;
constexpr uint8_t kMldV2Report = 143;

}  // namespace

void NetStack::start(const NetTime& time) noexcept {
  BP_KEEPS_VALID(*this);
  time_ = time;
  discovery_.start(time.now_ns);
}

void NetStack::receive(std::span<rte_mbuf*> frames, const NetTime& time) noexcept {
  BP_ASSERT(frames.size() <= FrameQueue::kBurstMax);
  BP_KEEPS_VALID(*this);
  BP_DCHECK(time.now_ns >= time_.now_ns && "time does not go back");
  time_ = time;
  datagram_sender_.forget_sums();
  counters_->received_frames.add(frames.size());
  for (rte_mbuf* frame : frames) rte_prefetch0(rte_pktmbuf_mtod(frame, void*));
  for (rte_mbuf* frame : frames) take_frame(frame, {});
  deliver_pending();
}

uint32_t NetStack::advance(const NetTime& time) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(time.now_ns >= time_.now_ns && "time does not go back");
  time_ = time;
  datagram_sender_.forget_sums();
  uint32_t count = 0;
  if (looped_.count() > 0) count += take_looped();
  if (others_.are_there()) count += take_handed();
  neighbours_.advance(time.now_ns);
  discovery_.advance(time.now_ns);
  reports_.advance(time.now_ns);
  deliver_pending();
  if (notes_.wants_room) count += tell_room();
  return count;
}

uint64_t NetStack::next_deadline_ns() const noexcept {
  if (notes_.has_pending || notes_.wants_room || looped_.count() > 0) return 0;
  if (others_.have_handed()) return 0;
  return std::min(
      {neighbours_.next_deadline_ns(), discovery_.next_deadline_ns(), reports_.next_deadline_ns()});
}

// ---- Receiving ----------------------------------------------------------------------------------

void NetStack::take_frame(rte_mbuf* frame, const Origin& origin) noexcept {
  ParsedPacket packet;
  const PacketFilter filter = {
      .mac = sender_.mac(), .vlan = options_.vlan, .is_trusted = origin.is_own};
  bool is_taken = false;
  PacketDrop cause = parse_packet(frame, filter, packet);
  if (cause == PacketDrop::kNone) cause = take_packet(frame, packet, origin, is_taken);
  if (cause != PacketDrop::kNone) counters_->drop(cause);
  if (!is_taken) rte_pktmbuf_free(frame);
}

PacketDrop NetStack::take_packet(rte_mbuf* frame, ParsedPacket& packet, const Origin& origin,
                                 bool& is_taken) noexcept {
  const bool may_answer = !origin.is_handed;
  if (packet.kind == PacketKind::kArp) {
    if (may_answer) others_.hand_to_all(frame, time_.now_ns);
    return discovery_.take_arp(packet, may_answer, time_.now_ns);
  }
  if (!is_multicast(packet.to) && !routes_.is_own(packet.to) && !routes_.is_broadcast(packet.to)) {
    return PacketDrop::kIpDestination;
  }
  if (routes_.is_broadcast(packet.from)) return PacketDrop::kIpSource;
  const uint8_t type = packet.message[0];
  if (packet.kind == PacketKind::kIcmp6 && type >= ND_ROUTER_SOLICIT && type <= ND_REDIRECT) {
    if (may_answer) others_.hand_to_all(frame, time_.now_ns);
    return discovery_.take_icmp6(packet, may_answer, time_.now_ns);  // it detects address conflicts
  }
  if (!origin.is_own && routes_.is_own(packet.from)) return PacketDrop::kIpSource;
  switch (packet.kind) {
    case PacketKind::kUdp: return take_datagram(frame, packet, origin, is_taken);
    case PacketKind::kIgmp:
      if (may_answer) others_.hand_to_all(frame, time_.now_ns);
      return reports_.take_igmp(packet, time_.now_ns);
    default: break;
  }
  const bool is_mld = packet.kind == PacketKind::kIcmp6 &&
                      ((type >= kMldFirst && type <= kMldLast) || type == kMldV2Report);
  const bool is_echo = type == (packet.kind == PacketKind::kIcmp6 ? 128 : 8);
  if (may_answer && !is_echo) others_.hand_to_all(frame, time_.now_ns);
  return is_mld ? reports_.take_mld(packet, time_.now_ns) : take_icmp(packet, origin);
}

PacketDrop NetStack::take_icmp(const ParsedPacket& packet, const Origin& origin) noexcept {
  IcmpFailure failure;
  const PacketDrop cause = icmp_.take(packet, !origin.is_handed, time_.now_ns, failure);
  if (cause != PacketDrop::kNone || failure.error_number == 0) return cause;
  // A quote may be forged: it must match a socket and an address of ours.
  const PortDatagramSocket* socket = sockets_.find(failure.from, failure.to);
  if (socket == nullptr || !routes_.is_own(failure.from.ip)) {
    return others_.are_there() ? PacketDrop::kNone : PacketDrop::kIcmp;
  }
  if (failure.error_number == EMSGSIZE &&
      (failure.mtu_bytes >= sender_.mtu_bytes() ||
       !paths_.learn(failure.to.ip, failure.mtu_bytes, time_.now_ns))) {
    return PacketDrop::kIcmp;
  }
  tell_failure(failure);
  return PacketDrop::kNone;
}

void NetStack::tell_failure(const IcmpFailure& failure) noexcept {
  if (PortDatagramSocket* socket = sockets_.find(failure.from, failure.to)) {
    socket->tell_failure(failure.error_number, failure.to);
  }
}

PacketDrop NetStack::take_datagram(rte_mbuf* frame, const ParsedPacket& packet,
                                   const Origin& origin, bool& is_taken) noexcept {
  // No frame is handed over twice.
  const auto hand_to_owners = [&] {
    return !origin.is_handed && others_.hand_to_owners(frame, packet.to_port, origin.is_own);
  };
  if (is_multicast(packet.to) || routes_.is_broadcast(packet.to)) {
    const bool is_handed = hand_to_owners();
    const PacketDrop cause = deliver_to_all(frame, packet, is_taken);
    return is_handed && cause == PacketDrop::kIpDestination ? PacketDrop::kNone : cause;
  }
  const DatagramAddress to{packet.to, packet.to_port, 0};
  const DatagramAddress from{packet.from, packet.from_port, 0};
  if (PortDatagramSocket* socket = sockets_.find(to, from)) {
    const PacketDrop cause = socket->push(frame, packet, time_.wall_ns);
    is_taken = cause == PacketDrop::kNone;
    return cause;
  }
  if (hand_to_owners()) return PacketDrop::kNone;
  if (!origin.is_handed && !origin.is_own) icmp_.refuse(packet, time_.now_ns);
  return PacketDrop::kNoSocket;
}

// Each socket but the last gets another reference to the frame; the last one gets ours.
PacketDrop NetStack::deliver_to_all(rte_mbuf* frame, const ParsedPacket& packet,
                                    bool& is_taken) noexcept {
  const DatagramAddress to{packet.to, packet.to_port, 0};
  const DatagramAddress from{packet.from, packet.from_port, 0};
  PortDatagramSocket* last = nullptr;
  for (PortDatagramSocket* one = sockets_.first(packet.to_port); one != nullptr;
       one = one->link().next) {
    if (!one->takes_from_many(to, from)) continue;
    if (last != nullptr) {
      rte_pktmbuf_refcnt_update(frame, 1);
      const PacketDrop cause = last->push(frame, packet, time_.wall_ns);
      if (cause != PacketDrop::kNone) {
        rte_pktmbuf_free(frame);
        counters_->drop(cause);
      }
    }
    last = one;
  }
  if (last == nullptr) return PacketDrop::kIpDestination;
  const PacketDrop cause = last->push(frame, packet, time_.wall_ns);
  is_taken = cause == PacketDrop::kNone;
  return cause;
}

void NetStack::deliver_pending() noexcept {
  if (!notes_.has_pending) return;
  notes_.has_pending = false;
  // Owners that are called may close and open sockets; the other sockets keep their slots.
  for (uint32_t slot = 0; slot < sockets_.count_max(); ++slot) {
    if (PortDatagramSocket* socket = sockets_.at(slot)) socket->deliver();
  }
}

uint32_t NetStack::take_handed() noexcept {
  PortShared::Handed handed[FrameQueue::kBurstMax];
  const uint32_t count = others_.take(handed);
  BP_DCHECK(count <= FrameQueue::kBurstMax);
  for (uint32_t i = 0; i < count; ++i) {
    take_frame(handed[i].frame, {.is_own = handed[i].is_own != 0, .is_handed = true});
  }
  return count;
}

// Takes at most one burst, so that a socket has space for all its frames.
uint32_t NetStack::take_looped() noexcept {
  rte_mbuf* frames[FrameQueue::kBurstMax];
  const uint32_t count = looped_.take(frames);
  for (uint32_t i = 0; i < count; ++i) take_frame(frames[i], {.is_own = true});
  deliver_pending();
  return count;
}

uint32_t NetStack::tell_room() noexcept {
  if (!sender_.queue().has_room()) return 0;
  notes_.wants_room = false;
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < sockets_.count_max(); ++slot) {
    PortDatagramSocket* socket = sockets_.at(slot);
    if (socket != nullptr) count += socket->tell_room();
  }
  return count;
}

// ---- For its neighbours -------------------------------------------------------------------------

void NetStack::ask(const IpAddress& target, const rte_ether_addr* known) noexcept {
  discovery_.ask(target, known);
}

void NetStack::send_waiting(rte_mbuf* frame, const rte_ether_addr& mac) noexcept {
  BP_DCHECK(!rte_is_multicast_ether_addr(&mac) && "a station has answered");
  FrameSender::set_destination(frame, mac);
  sender_.send(frame);
}

// The frame has the headers that DatagramSender made.
void NetStack::drop_waiting(rte_mbuf* frame, bool is_unresolved) noexcept {
  BP_DCHECK(frame->l2_len >= sizeof(rte_ether_hdr) && frame->l4_len == sizeof(rte_udp_hdr));
  BP_DCHECK(rte_pktmbuf_data_len(frame) >= frame->l2_len + frame->l3_len + frame->l4_len);
  counters_->drop(is_unresolved ? PacketDrop::kUnresolved : PacketDrop::kWaitingFull);
  IcmpFailure failure;
  failure.error_number = EHOSTUNREACH;
  const uint8_t* network = rte_pktmbuf_mtod(frame, const uint8_t*) + frame->l2_len;
  if (network[0] >> 4 == 6) {
    failure.from.ip = ipv6_address(network + offsetof(rte_ipv6_hdr, src_addr));
    failure.to.ip = ipv6_address(network + offsetof(rte_ipv6_hdr, dst_addr));
  } else {
    rte_ipv4_hdr header;
    std::memcpy(&header, network, sizeof header);
    failure.from.ip = ipv4_address(header.src_addr);
    failure.to.ip = ipv4_address(header.dst_addr);
  }
  rte_udp_hdr udp;
  std::memcpy(&udp, network + frame->l3_len, sizeof udp);
  failure.from.port = rte_be_to_cpu_16(udp.src_port);
  failure.to.port = rte_be_to_cpu_16(udp.dst_port);
  rte_pktmbuf_free(frame);
  if (is_unresolved) tell_failure(failure);
}

}  // namespace bedplate
