#include "transport/dpdk/net/icmp_datapath.h"

#include <algorithm>
#include <cerrno>

#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint32_t kHeadBytes = sizeof(rte_icmp_hdr);  // of every message that is read
// A refusal quotes at most so much of the packet: RFC 1812, 4.3.2.3; RFC 4443 allows more.
constexpr uint32_t kQuoteBytesMax = 576 - sizeof(rte_ipv4_hdr) - kHeadBytes;
// The MTU to assume if an old router gives none (RFC 1191, 5).
constexpr uint32_t kOldRouterMtuBytes = 576;

uint16_t number_at(const uint8_t* bytes) noexcept {
  return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]);
}

// The errno values of Linux. 0: not an error, or an error that is not passed to a sender.
int error_of_ipv4(uint8_t type, uint8_t code) noexcept {
  if (type == ICMP_TIME_EXCEEDED) return EHOSTUNREACH;
  if (type == ICMP_PARAMETERPROB) return EPROTO;
  if (type != ICMP_DEST_UNREACH) return 0;
  switch (code) {
    case ICMP_NET_UNREACH:
    case ICMP_NET_UNKNOWN:
    case ICMP_NET_ANO:
    case ICMP_NET_UNR_TOS: return ENETUNREACH;
    case ICMP_PROT_UNREACH: return ENOPROTOOPT;
    case ICMP_PORT_UNREACH: return ECONNREFUSED;
    case ICMP_FRAG_NEEDED: return EMSGSIZE;
    default: return EHOSTUNREACH;
  }
}

int error_of_ipv6(uint8_t type, uint8_t code) noexcept {
  if (type == ICMP6_PACKET_TOO_BIG) return EMSGSIZE;
  if (type == ICMP6_TIME_EXCEEDED) return EHOSTUNREACH;
  if (type == ICMP6_PARAM_PROB) return EPROTO;
  if (type != ICMP6_DST_UNREACH) return 0;
  switch (code) {
    case ICMP6_DST_UNREACH_NOROUTE: return ENETUNREACH;
    case ICMP6_DST_UNREACH_NOPORT: return ECONNREFUSED;
    case ICMP6_DST_UNREACH_BEYONDSCOPE:
    case ICMP6_DST_UNREACH_ADDR: return EHOSTUNREACH;
    default: return EACCES;
  }
}

// Reads the beginning of a datagram that we sent: our datagrams have no options or extension
// headers.
bool read_quote(const ParsedPacket& packet, IcmpFailure& failure) noexcept {
  const bool is_ipv6 = packet.kind == PacketKind::kIcmp6;
  const uint8_t* quote = packet.message + kHeadBytes;
  const uint32_t ip_bytes = is_ipv6 ? sizeof(rte_ipv6_hdr) : sizeof(rte_ipv4_hdr);
  if (packet.message_bytes < kHeadBytes + ip_bytes + sizeof(rte_udp_hdr)) return false;
  if (is_ipv6) {
    rte_ipv6_hdr header;
    std::memcpy(&header, quote, sizeof header);
    if (quote[0] >> 4 != 6 || header.proto != IPPROTO_UDP) return false;
    failure.from.ip = ipv6_address(header.src_addr);
    failure.to.ip = ipv6_address(header.dst_addr);
  } else {
    rte_ipv4_hdr header;
    std::memcpy(&header, quote, sizeof header);
    if (header.version_ihl != RTE_IPV4_VHL_DEF || header.next_proto_id != IPPROTO_UDP) return false;
    if ((header.fragment_offset & rte_cpu_to_be_16(RTE_IPV4_HDR_OFFSET_MASK)) != 0) return false;
    failure.from.ip = ipv4_address(header.src_addr);
    failure.to.ip = ipv4_address(header.dst_addr);
  }
  failure.from.port = number_at(quote + ip_bytes);
  failure.to.port = number_at(quote + ip_bytes + 2);
  return true;
}

}  // namespace

PacketDrop Icmp::take(const ParsedPacket& packet, bool may_answer, uint64_t now_ns,
                      IcmpFailure& failure) noexcept {
  BP_DCHECK(packet.kind == PacketKind::kIcmp4 || packet.kind == PacketKind::kIcmp6);
  BP_DCHECK(packet.message_bytes >= kHeadBytes);
  const bool is_ipv6 = packet.kind == PacketKind::kIcmp6;
  const uint8_t type = packet.message[0];
  const uint8_t code = packet.message[1];
  failure = {};
  if (type == (is_ipv6 ? ICMP6_ECHO_REQUEST : ICMP_ECHO)) {
    if (is_ipv6 && is_unspecified(packet.from)) return PacketDrop::kIpSource;
    if (!may_answer) return PacketDrop::kNone;
    if (!replies_.try_take(now_ns)) return PacketDrop::kRateLimited;
    answer_echo(packet);
    return PacketDrop::kNone;
  }
  const int error_number = is_ipv6 ? error_of_ipv6(type, code) : error_of_ipv4(type, code);
  if (error_number == 0) return PacketDrop::kNone;
  if (!read_quote(packet, failure)) return PacketDrop::kIcmp;
  failure.error_number = error_number;
  if (error_number == EMSGSIZE) {
    uint32_t mtu_bytes = number_at(packet.message + 6);
    if (is_ipv6) mtu_bytes |= uint32_t{number_at(packet.message + 4)} << 16;
    if (!is_ipv6 && mtu_bytes == 0) mtu_bytes = kOldRouterMtuBytes;
    failure.mtu_bytes = mtu_bytes;
  }
  return PacketDrop::kNone;
}

void Icmp::send(const ParsedPacket& packet, const IpAddress& from, rte_mbuf* message) noexcept {
  BP_DCHECK(routes_.is_own(from) && from.family == packet.from.family);
  BP_DCHECK(!is_multicast(packet.from) && !is_unspecified(packet.from));
  BP_DCHECK(message->nb_segs == 1 && rte_pktmbuf_data_len(message) >= kHeadBytes);
  auto* bytes = rte_pktmbuf_mtod(message, uint8_t*);
  const IpFields fields = {
      .from = from,
      .to = packet.from,
      .protocol = from.family == AF_INET6 ? uint8_t{IPPROTO_ICMPV6} : uint8_t{IPPROTO_ICMP}};
  if (from.family == AF_INET6) {
    sender_.put_icmp6(message, fields, packet.from_mac);
  } else {
    const uint16_t none = 0;
    std::memcpy(bytes + offsetof(rte_icmp_hdr, icmp_cksum), &none, sizeof none);
    const auto sum = static_cast<uint16_t>(~rte_raw_cksum(bytes, rte_pktmbuf_data_len(message)));
    std::memcpy(bytes + offsetof(rte_icmp_hdr, icmp_cksum), &sum, sizeof sum);
    sender_.put_ip(message, fields);
    sender_.put_ethernet(message, RTE_ETHER_TYPE_IPV4, packet.from_mac);
  }
  sender_.send(message);
}

// Answers an echo request to a group only with IPv6 (RFC 4443, 4.2; RFC 1122, 3.2.2.6, leaves it
// open).
void Icmp::answer_echo(const ParsedPacket& packet) noexcept {
  const bool is_ipv6 = packet.kind == PacketKind::kIcmp6;
  IpAddress from = packet.to;
  if (is_multicast(from)) from = is_ipv6 ? routes_.source_for(packet.from) : IpAddress{};
  if (from.family == 0 || !routes_.is_own(from)) return;
  // A longer reply would need fragments, which FrameSender does not make.
  const uint32_t ip_bytes = is_ipv6 ? sizeof(rte_ipv6_hdr) : sizeof(rte_ipv4_hdr);
  BP_DCHECK(sender_.mtu_bytes() > ip_bytes);
  if (packet.message_bytes > sender_.mtu_bytes() - ip_bytes) return;
  rte_mbuf* frame = sender_.make(packet.message_bytes);
  if (frame == nullptr) return;
  auto* message = rte_pktmbuf_mtod(frame, uint8_t*);
  std::memcpy(message, packet.message, packet.message_bytes);
  message[0] = is_ipv6 ? ICMP6_ECHO_REPLY : ICMP_ECHOREPLY;
  counters_.echo_replies.add(1);
  send(packet, from, frame);
}

void Icmp::refuse(const ParsedPacket& packet, uint64_t now_ns) noexcept {
  BP_DCHECK(packet.kind == PacketKind::kUdp && routes_.is_own(packet.to));
  BP_DCHECK(packet.network != nullptr && packet.network < packet.message);
  if (rte_is_multicast_ether_addr(&packet.to_mac)) return;
  if (!refusals_.try_take(now_ns)) {
    counters_.drop(PacketDrop::kRateLimited);
    return;
  }
  const uint32_t quote_bytes = std::min(packet.network_bytes, kQuoteBytesMax);
  rte_mbuf* frame = sender_.make(kHeadBytes + quote_bytes);
  if (frame == nullptr) return;
  auto* message = rte_pktmbuf_mtod(frame, uint8_t*);
  std::memset(message, 0, kHeadBytes);
  const bool is_ipv6 = packet.to.family == AF_INET6;
  message[0] = is_ipv6 ? ICMP6_DST_UNREACH : ICMP_DEST_UNREACH;
  message[1] = is_ipv6 ? ICMP6_DST_UNREACH_NOPORT : ICMP_PORT_UNREACH;
  std::memcpy(message + kHeadBytes, packet.network, quote_bytes);
  send(packet, packet.to, frame);
}

}  // namespace bedplate
