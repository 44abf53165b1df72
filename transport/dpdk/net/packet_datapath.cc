#include "transport/dpdk/net/packet_datapath.h"

#include <cstring>

#include <netinet/icmp6.h>
#include <rte_arp.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"

namespace bedplate {
namespace {

constexpr uint16_t kVlanMask = 0x0fff;
// The most IPv6 extension headers that are parsed, and their bytes together.
constexpr uint32_t kExtensionCountMax = 4;
constexpr uint32_t kExtensionBytesMax = 256;
constexpr uint32_t kIgmpBytesMin = 8;

// Reads a header at any alignment.
template <typename Header>
Header header_at(const uint8_t* bytes) noexcept {
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  return header;
}

enum class Believed { kGood, kBad, kUnknown };

// The port's verdict on a checksum. NONE counts as good: the checksum is wrong, but the data is
// good.
Believed believed(uint64_t flags, uint64_t mask, uint64_t bad, uint64_t unknown) noexcept {
  if ((flags & mask) == bad) return Believed::kBad;
  return (flags & mask) == unknown ? Believed::kUnknown : Believed::kGood;
}

// The parser of one frame. Each step returns kNone and continues at `at_`.
class Parser {
 public:
  Parser(rte_mbuf* frame, const PacketFilter& filter, ParsedPacket& packet) noexcept
      : frame_(frame),
        filter_(filter),
        packet_(packet),
        at_(rte_pktmbuf_mtod(frame, uint8_t*)),
        end_(at_ + rte_pktmbuf_data_len(frame)),
        beyond_bytes_(rte_pktmbuf_pkt_len(frame) - rte_pktmbuf_data_len(frame)) {
    BP_DCHECK(rte_pktmbuf_pkt_len(frame) >= rte_pktmbuf_data_len(frame));
  }

  PacketDrop ethernet() noexcept {
    if (first_bytes() < sizeof(rte_ether_hdr)) return PacketDrop::kTooShort;
    std::memcpy(&packet_.to_mac, at_, sizeof packet_.to_mac);
    std::memcpy(&packet_.from_mac, at_ + sizeof packet_.to_mac, sizeof packet_.from_mac);
    uint16_t type = number_at(at_ + 2 * sizeof packet_.to_mac);
    at_ += sizeof(rte_ether_hdr);
    uint16_t vlan = 0;
    if ((frame_->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0) {
      vlan = frame_->vlan_tci & kVlanMask;
    } else if (type == RTE_ETHER_TYPE_VLAN) {
      if (first_bytes() < sizeof(rte_vlan_hdr)) return PacketDrop::kTooShort;
      vlan = number_at(at_) & kVlanMask;
      type = number_at(at_ + 2);
      at_ += sizeof(rte_vlan_hdr);
    }
    if (vlan != filter_.vlan) return PacketDrop::kOtherVlan;
    if (!filter_.is_trusted && !is_between_stations()) return PacketDrop::kOtherMac;
    switch (type) {
      case RTE_ETHER_TYPE_ARP: return arp();
      case RTE_ETHER_TYPE_IPV4: return ipv4();
      case RTE_ETHER_TYPE_IPV6: return ipv6();
      default: return PacketDrop::kEtherType;
    }
  }

 private:
  uint32_t first_bytes() const noexcept {
    BP_DCHECK(at_ <= end_ && "no step goes beyond what it has looked at");
    return static_cast<uint32_t>(end_ - at_);
  }
  uint32_t all_bytes() const noexcept { return first_bytes() + beyond_bytes_; }

  static uint16_t number_at(const uint8_t* bytes) noexcept {
    return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]);
  }

  // Whether the frame is from another station, to this one or to many. Without this check the port
  // would answer itself on a link that echoes its frames.
  bool is_between_stations() const noexcept {
    return (rte_is_multicast_ether_addr(&packet_.to_mac) ||
            rte_is_same_ether_addr(&packet_.to_mac, &filter_.mac)) &&
           !rte_is_multicast_ether_addr(&packet_.from_mac) &&
           !rte_is_same_ether_addr(&packet_.from_mac, &filter_.mac);
  }

  PacketDrop arp() noexcept {
    if (first_bytes() < sizeof(rte_arp_hdr)) return PacketDrop::kTooShort;
    packet_.kind = PacketKind::kArp;
    packet_.message = at_;
    packet_.message_bytes = sizeof(rte_arp_hdr);
    return PacketDrop::kNone;
  }

  PacketDrop ipv4() noexcept {
    if (first_bytes() < sizeof(rte_ipv4_hdr)) return PacketDrop::kTooShort;
    const auto header = header_at<rte_ipv4_hdr>(at_);
    const uint32_t header_bytes = rte_ipv4_hdr_len(&header);
    if (header.version_ihl >> 4 != IPVERSION || header_bytes < sizeof header) {
      return PacketDrop::kIpHeader;
    }
    if (first_bytes() < header_bytes) return PacketDrop::kTooShort;
    const uint32_t bytes = rte_be_to_cpu_16(header.total_length);
    if (bytes < header_bytes || bytes > all_bytes()) return PacketDrop::kIpHeader;
    if (!filter_.is_trusted) {
      switch (believed(frame_->ol_flags, RTE_MBUF_F_RX_IP_CKSUM_MASK, RTE_MBUF_F_RX_IP_CKSUM_BAD,
                       RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN)) {
        case Believed::kGood: break;
        case Believed::kBad: return PacketDrop::kIpChecksum;
        case Believed::kUnknown:
          if (rte_raw_cksum(at_, header_bytes) != 0xffff) return PacketDrop::kIpChecksum;
      }
    }
    if (const PacketDrop cause = ipv4_options(at_ + sizeof header, at_ + header_bytes);
        cause != PacketDrop::kNone) {
      return cause;
    }
    const uint16_t fragment = rte_be_to_cpu_16(header.fragment_offset);
    if ((fragment & (RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) != 0) {
      return PacketDrop::kFragment;
    }
    packet_.from = ipv4_address(header.src_addr);
    packet_.to = ipv4_address(header.dst_addr);
    packet_.hops = header.time_to_live;
    packet_.ecn = static_cast<Ecn>(header.type_of_service & RTE_IPV4_HDR_ECN_MASK);
    return transport(header.next_proto_id, header_bytes, bytes);
  }

  // Skips options; refuses source routes and invalid lengths.
  PacketDrop ipv4_options(const uint8_t* option, const uint8_t* end) noexcept {
    constexpr uint8_t kLooseRoute = 131;
    constexpr uint8_t kStrictRoute = 137;
    constexpr uint8_t kRouterAlert = 148;
    BP_DCHECK(option <= end && end <= end_);
    while (option < end && *option != RTE_IPV4_HDR_OPT_EOL) {
      if (*option == RTE_IPV4_HDR_OPT_NOP) {
        ++option;
        continue;
      }
      if (end - option < 2 || option[1] < 2 || option[1] > end - option)
        return PacketDrop::kIpHeader;
      if (*option == kLooseRoute || *option == kStrictRoute) return PacketDrop::kRoutingHeader;
      if (*option == kRouterAlert) packet_.has_router_alert = true;
      option += option[1];
    }
    BP_DCHECK(option <= end && "no option is longer than the header");
    return PacketDrop::kNone;
  }

  PacketDrop ipv6() noexcept {
    if (first_bytes() < sizeof(rte_ipv6_hdr)) return PacketDrop::kTooShort;
    const auto header = header_at<rte_ipv6_hdr>(at_);
    const uint32_t word = rte_be_to_cpu_32(header.vtc_flow);
    if (word >> 28 != 6) return PacketDrop::kIpHeader;
    const uint32_t bytes = uint32_t{sizeof header} + rte_be_to_cpu_16(header.payload_len);
    if (bytes > all_bytes()) return PacketDrop::kIpHeader;
    packet_.from = ipv6_address(header.src_addr);
    packet_.to = ipv6_address(header.dst_addr);
    packet_.hops = header.hop_limits;
    packet_.ecn = static_cast<Ecn>(word >> RTE_IPV6_HDR_TC_SHIFT & 3);
    uint32_t header_bytes = sizeof header;
    uint8_t next = header.proto;
    for (uint32_t i = 0;; ++i) {
      if (next == IPPROTO_FRAGMENT) return PacketDrop::kFragment;
      if (next == IPPROTO_ROUTING) return PacketDrop::kRoutingHeader;
      if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS) break;
      // RFC 8200, 4.1: hop-by-hop options may only be the first header.
      if (i == kExtensionCountMax || (next == IPPROTO_HOPOPTS && i > 0)) {
        return PacketDrop::kExtensionHeaders;
      }
      if (bytes - header_bytes < 8 || first_bytes() < header_bytes + 8)
        return PacketDrop::kTooShort;
      const uint8_t* extension = at_ + header_bytes;
      const uint32_t extension_bytes = (extension[1] + 1U) * 8;
      if (bytes - header_bytes < extension_bytes) return PacketDrop::kIpHeader;
      if (header_bytes + extension_bytes > sizeof header + kExtensionBytesMax) {
        return PacketDrop::kExtensionHeaders;
      }
      if (first_bytes() < header_bytes + extension_bytes) return PacketDrop::kTooShort;
      if (!ipv6_options(extension + 2, extension + extension_bytes)) {
        return PacketDrop::kExtensionHeaders;
      }
      next = extension[0];
      header_bytes += extension_bytes;
      BP_DCHECK(header_bytes % 8 == 0 && "RFC 8200, 4: headers are whole units");
    }
    return transport(next, header_bytes, bytes);
  }

  // RFC 8200, 4.2: the first bits of an unknown option tell whether it may be skipped.
  bool ipv6_options(const uint8_t* option, const uint8_t* end) noexcept {
    constexpr uint8_t kPad1 = 0;
    constexpr uint8_t kPadN = 1;
    constexpr uint8_t kRouterAlert = 5;
    BP_DCHECK(option <= end && end <= end_);
    while (option < end) {
      if (*option == kPad1) {
        ++option;
        continue;
      }
      if (end - option < 2 || option[1] > end - option - 2) return false;
      if (*option == kRouterAlert) {
        packet_.has_router_alert = true;
      } else if (*option != kPadN && *option >> 6 != 0) {
        return false;
      }
      option += 2 + option[1];
    }
    BP_DCHECK(option == end && "the last option ends where its header does");
    return true;
  }

  // `bytes`: of the whole packet. The rest of the frame is padding.
  PacketDrop transport(uint8_t protocol, uint32_t header_bytes, uint32_t bytes) noexcept {
    BP_DCHECK(header_bytes <= bytes && header_bytes <= first_bytes());
    BP_DCHECK(packet_.from.family == packet_.to.family && bytes <= all_bytes());
    const bool is_ipv6 = packet_.from.family == AF_INET6;
    if (is_multicast(packet_.from) || is_loopback(packet_.from) ||
        is_limited_broadcast(packet_.from)) {
      return PacketDrop::kIpSource;
    }
    if (is_loopback(packet_.to) || is_unspecified(packet_.to)) return PacketDrop::kIpDestination;
    packet_.network = at_;
    packet_.network_bytes = bytes < first_bytes() ? bytes : first_bytes();
    packet_.message = at_ + header_bytes;
    packet_.message_bytes = bytes - header_bytes;
    at_ += header_bytes;
    if (protocol == IPPROTO_UDP) return udp();
    if (packet_.message_bytes > first_bytes()) return PacketDrop::kScattered;
    if (protocol == IPPROTO_ICMP && !is_ipv6) {
      packet_.kind = PacketKind::kIcmp4;
      if (packet_.message_bytes < sizeof(rte_icmp_hdr) || !is_sum_right(0))
        return PacketDrop::kIcmp;
      return has_source(PacketDrop::kNone);
    }
    if (protocol == IPPROTO_ICMPV6 && is_ipv6) {
      packet_.kind = PacketKind::kIcmp6;
      const uint32_t pseudo =
          pseudo_header_sum(packet_.from, packet_.to, protocol, packet_.message_bytes);
      if (packet_.message_bytes < sizeof(icmp6_hdr) || !is_sum_right(pseudo))
        return PacketDrop::kIcmp;
      return PacketDrop::kNone;  // neighbour discovery and MLD handle ::
    }
    if (protocol == IPPROTO_IGMP && !is_ipv6) {
      packet_.kind = PacketKind::kIgmp;
      if (packet_.message_bytes < kIgmpBytesMin || !is_sum_right(0)) return PacketDrop::kGroups;
      return PacketDrop::kNone;
    }
    return PacketDrop::kProtocol;
  }

  bool is_sum_right(uint32_t pseudo) const noexcept {
    BP_DCHECK(packet_.message == at_ && packet_.message_bytes <= first_bytes());
    return filter_.is_trusted ||
           folded(__rte_raw_cksum(packet_.message, packet_.message_bytes, pseudo)) == 0xffff;
  }

  PacketDrop has_source(PacketDrop otherwise) const noexcept {
    return is_unspecified(packet_.from) ? PacketDrop::kIpSource : otherwise;
  }

  PacketDrop udp() noexcept {
    packet_.kind = PacketKind::kUdp;
    BP_DCHECK(packet_.message == at_ && packet_.message_bytes <= all_bytes());
    if (packet_.message_bytes < sizeof(rte_udp_hdr)) return PacketDrop::kUdpLength;
    if (first_bytes() < sizeof(rte_udp_hdr)) return PacketDrop::kScattered;
    const auto header = header_at<rte_udp_hdr>(at_);
    const uint32_t bytes = rte_be_to_cpu_16(header.dgram_len);
    if (bytes < sizeof header || bytes > packet_.message_bytes) return PacketDrop::kUdpLength;
    if (const PacketDrop cause = udp_sum(header, bytes); cause != PacketDrop::kNone) return cause;
    packet_.message_bytes = sizeof header;
    packet_.from_port = rte_be_to_cpu_16(header.src_port);
    packet_.to_port = rte_be_to_cpu_16(header.dst_port);
    packet_.payload_bytes = bytes - static_cast<uint32_t>(sizeof header);
    at_ += sizeof header;
    if (!find_payload()) return PacketDrop::kScattered;
    return has_source(PacketDrop::kNone);
  }

  PacketDrop udp_sum(const rte_udp_hdr& header, uint32_t bytes) const noexcept {
    if (filter_.is_trusted) return PacketDrop::kNone;
    const bool is_ipv6 = packet_.from.family == AF_INET6;
    // RFC 8200, 8.1: only IPv4 may have no checksum.
    if (header.dgram_cksum == 0) return is_ipv6 ? PacketDrop::kUdpChecksum : PacketDrop::kNone;
    switch (believed(frame_->ol_flags, RTE_MBUF_F_RX_L4_CKSUM_MASK, RTE_MBUF_F_RX_L4_CKSUM_BAD,
                     RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN)) {
      case Believed::kGood: return PacketDrop::kNone;
      case Believed::kBad: return PacketDrop::kUdpChecksum;
      case Believed::kUnknown: break;
    }
    uint16_t sum = 0;
    const auto offset = static_cast<uint32_t>(at_ - rte_pktmbuf_mtod(frame_, uint8_t*));
    BP_DCHECK(bytes >= sizeof header && offset + bytes <= rte_pktmbuf_pkt_len(frame_));
    if (rte_raw_cksum_mbuf(frame_, offset, bytes, &sum) != 0) return PacketDrop::kUdpLength;
    const uint32_t pseudo = pseudo_header_sum(packet_.from, packet_.to, IPPROTO_UDP, bytes);
    return folded(pseudo + sum) == 0xffff ? PacketDrop::kNone : PacketDrop::kUdpChecksum;
  }

  // Finds the payload in one segment: the first, or the next one if the headers fill the first.
  bool find_payload() noexcept {
    BP_DCHECK(packet_.payload_bytes <= all_bytes());
    packet_.payload_segment = frame_;
    packet_.payload = reinterpret_cast<std::byte*>(at_);
    if (packet_.payload_bytes <= first_bytes()) return true;
    if (first_bytes() > 0) return false;
    rte_mbuf* segment = frame_->next;
    while (segment != nullptr && rte_pktmbuf_data_len(segment) == 0) segment = segment->next;
    if (segment == nullptr || packet_.payload_bytes > rte_pktmbuf_data_len(segment)) return false;
    packet_.payload_segment = segment;
    packet_.payload = rte_pktmbuf_mtod(segment, std::byte*);
    return true;
  }

  rte_mbuf* frame_;
  const PacketFilter& filter_;
  ParsedPacket& packet_;
  uint8_t* at_;
  uint8_t* end_;           // of the first segment
  uint32_t beyond_bytes_;  // of the other segments
};

// Whether all pointers of a packet are within its frame.
[[maybe_unused]] bool is_within(const ParsedPacket& packet, const rte_mbuf& frame) noexcept {
  const auto* start = rte_pktmbuf_mtod(&frame, const uint8_t*);
  const uint8_t* end = start + rte_pktmbuf_data_len(&frame);
  if (packet.message < start || packet.message_bytes > static_cast<size_t>(end - packet.message)) {
    return false;
  }
  if (packet.kind == PacketKind::kArp) return packet.from.family == 0 && packet.to.family == 0;
  if (packet.from.family != packet.to.family || packet.network < start ||
      packet.network_bytes > static_cast<size_t>(end - packet.network)) {
    return false;
  }
  if (packet.kind != PacketKind::kUdp) return true;
  const rte_mbuf* its = &frame;
  while (its != nullptr && its != packet.payload_segment) its = its->next;
  if (its == nullptr) return false;
  const rte_mbuf& segment = *packet.payload_segment;
  const auto* first = rte_pktmbuf_mtod(&segment, const std::byte*);
  const std::byte* last = first + rte_pktmbuf_data_len(&segment);
  return packet.payload >= first && packet.payload <= last &&
         packet.payload_bytes <= static_cast<size_t>(last - packet.payload);
}

}  // namespace

uint32_t pseudo_header_sum(const IpAddress& from, const IpAddress& to, uint8_t protocol,
                           uint32_t bytes) noexcept {
  BP_DCHECK(from.byte_count() == to.byte_count());
  // One sum serves both families: IPv6 has the same fields, only wider.
  uint32_t sum = __rte_raw_cksum(from.bytes, from.byte_count(), 0);
  sum = __rte_raw_cksum(to.bytes, to.byte_count(), sum);
  sum += rte_cpu_to_be_16(static_cast<uint16_t>(bytes >> 16));
  sum += rte_cpu_to_be_16(static_cast<uint16_t>(bytes & 0xffff));
  return sum + rte_cpu_to_be_16(uint16_t{protocol});
}

uint16_t folded(uint32_t sum) noexcept { return __rte_raw_cksum_reduce(sum); }

PacketDrop parse_packet(rte_mbuf* frame, const PacketFilter& filter,
                        ParsedPacket& packet) noexcept {
  packet = {};
  const PacketDrop cause = Parser(frame, filter, packet).ethernet();
  BP_DCHECK_SLOW(cause != PacketDrop::kNone || is_within(packet, *frame));
  return cause;
}

}  // namespace bedplate
