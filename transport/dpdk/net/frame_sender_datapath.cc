#include "transport/dpdk/net/frame_sender_datapath.h"

#include <algorithm>

#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "platform/assert.h"
#include "transport/dpdk/net/packet_datapath.h"

namespace bedplate {
namespace {

constexpr uint16_t kDoNotFragment = RTE_IPV4_HDR_DF_FLAG;
constexpr uint32_t kLengthMask = (1U << RTE_MBUF_L3_LEN_BITS) - 1;
constexpr uint8_t kAlertIpv4[4] = {148, 4, 0, 0};
// A hop-by-hop header with the option of RFC 2711, for MLD, and padding; its first byte is set.
constexpr uint8_t kAlertIpv6[8] = {0, 0, 5, 2, 0, 0, 1, 0};

static_assert(sizeof(rte_ipv6_hdr) + sizeof kAlertIpv6 <= kLengthMask);
// The headers before a datagram, or before a message that alerts routers, fit into the headroom.
static_assert(sizeof(rte_ether_hdr) + sizeof(rte_vlan_hdr) + sizeof(rte_ipv6_hdr) +
                  std::max(sizeof(rte_udp_hdr), sizeof kAlertIpv6) <=
              RTE_PKTMBUF_HEADROOM);

uint8_t* prepend(rte_mbuf* frame, uint32_t bytes) noexcept {
  char* start = rte_pktmbuf_prepend(frame, static_cast<uint16_t>(bytes));
  BP_ASSERT(start != nullptr && "it has headroom");
  return reinterpret_cast<uint8_t*>(start);
}

}  // namespace

rte_mbuf* FrameSender::make(uint32_t bytes) noexcept {
  rte_mbuf* frame = queue_.allocate();
  if (frame != nullptr && bytes <= rte_pktmbuf_tailroom(frame)) {
    rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes));
    return frame;
  }
  if (frame != nullptr) rte_pktmbuf_free(frame);
  counters_.drop(PacketDrop::kNoBuffer);
  return nullptr;
}

void FrameSender::put_ip(rte_mbuf* frame, const IpFields& fields) const noexcept {
  uint32_t bytes = rte_pktmbuf_pkt_len(frame);
  BP_DCHECK(fields.from.family == fields.to.family || is_unspecified(fields.from));
  BP_DCHECK(fields.protocol != 0 && frame->l3_len == 0 && "a frame has one header of IP");
  if (fields.from.family == AF_INET) {
    uint32_t header_bytes = sizeof(rte_ipv4_hdr);
    if (fields.alerts_routers) {
      std::memcpy(prepend(frame, sizeof kAlertIpv4), kAlertIpv4, sizeof kAlertIpv4);
      header_bytes += uint32_t{sizeof kAlertIpv4};
    }
    rte_ipv4_hdr header = {};
    header.version_ihl = static_cast<uint8_t>(IPVERSION << 4 | header_bytes / 4);
    header.type_of_service = fields.traffic_class;
    header.total_length = rte_cpu_to_be_16(static_cast<uint16_t>(header_bytes + bytes));
    header.fragment_offset = rte_cpu_to_be_16(kDoNotFragment);
    header.time_to_live = fields.hops;
    header.next_proto_id = fields.protocol;
    header.src_addr = ipv4_of(fields.from);
    header.dst_addr = ipv4_of(fields.to);
    uint8_t* start = prepend(frame, sizeof header);
    std::memcpy(start, &header, sizeof header);
    if (offloads_.ipv4_checksum && (frame->ol_flags & RTE_MBUF_F_TX_IPV4) != 0) {
      frame->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
    } else {
      header.hdr_checksum = static_cast<uint16_t>(~rte_raw_cksum(start, header_bytes));
      std::memcpy(start, &header, sizeof header);
    }
    frame->l3_len = header_bytes & kLengthMask;
    return;
  }
  uint8_t next = fields.protocol;
  uint32_t header_bytes = sizeof(rte_ipv6_hdr);
  if (fields.alerts_routers) {
    uint8_t* start = prepend(frame, sizeof kAlertIpv6);
    std::memcpy(start, kAlertIpv6, sizeof kAlertIpv6);
    start[0] = next;
    next = IPPROTO_HOPOPTS;
    bytes += uint32_t{sizeof kAlertIpv6};
    header_bytes += uint32_t{sizeof kAlertIpv6};
  }
  rte_ipv6_hdr header = {};
  header.vtc_flow =
      rte_cpu_to_be_32(6U << 28 | uint32_t{fields.traffic_class} << RTE_IPV6_HDR_TC_SHIFT);
  header.payload_len = rte_cpu_to_be_16(static_cast<uint16_t>(bytes));
  header.proto = next;
  header.hop_limits = fields.hops;
  std::memcpy(header.src_addr, fields.from.bytes, sizeof header.src_addr);
  std::memcpy(header.dst_addr, fields.to.bytes, sizeof header.dst_addr);
  std::memcpy(prepend(frame, sizeof header), &header, sizeof header);
  frame->l3_len = header_bytes & kLengthMask;
}

void FrameSender::put_ethernet(rte_mbuf* frame, uint16_t ether_type,
                               const rte_ether_addr& to) const noexcept {
  BP_DCHECK(rte_pktmbuf_pkt_len(frame) <= mtu_bytes_ && "nothing goes in fragments");
  if (vlan_ != 0) {
    const rte_vlan_hdr tag = {rte_cpu_to_be_16(vlan_), rte_cpu_to_be_16(ether_type)};
    std::memcpy(prepend(frame, sizeof tag), &tag, sizeof tag);
    ether_type = RTE_ETHER_TYPE_VLAN;
  }
  rte_ether_hdr header;
  header.dst_addr = to;
  header.src_addr = mac_;
  header.ether_type = rte_cpu_to_be_16(ether_type);
  std::memcpy(prepend(frame, sizeof header), &header, sizeof header);
  frame->l2_len = sizeof header + (vlan_ != 0 ? sizeof(rte_vlan_hdr) : 0);
}

void FrameSender::set_destination(rte_mbuf* frame, const rte_ether_addr& to) noexcept {
  BP_DCHECK(frame->l2_len >= sizeof(rte_ether_hdr));
  BP_DCHECK(rte_pktmbuf_data_len(frame) >= frame->l2_len);
  std::memcpy(rte_pktmbuf_mtod(frame, uint8_t*), &to, sizeof to);
}

void FrameSender::put_icmp6(rte_mbuf* frame, const IpFields& fields,
                            const rte_ether_addr& to) const noexcept {
  BP_DCHECK(fields.protocol == IPPROTO_ICMPV6 && frame->nb_segs == 1);
  uint8_t* message = rte_pktmbuf_mtod(frame, uint8_t*);
  const uint32_t bytes = rte_pktmbuf_data_len(frame);
  const uint16_t none = 0;
  std::memcpy(message + offsetof(rte_icmp_hdr, icmp_cksum), &none, sizeof none);
  const uint32_t pseudo = pseudo_header_sum(fields.from, fields.to, IPPROTO_ICMPV6, bytes);
  const auto sum = static_cast<uint16_t>(~folded(__rte_raw_cksum(message, bytes, pseudo)));
  std::memcpy(message + offsetof(rte_icmp_hdr, icmp_cksum), &sum, sizeof sum);
  put_ip(frame, fields);
  put_ethernet(frame, RTE_ETHER_TYPE_IPV6, to);
}

bool FrameSender::send(rte_mbuf* frame) noexcept {
  BP_DCHECK(frame->nb_segs >= 1 && frame->l2_len >= sizeof(rte_ether_hdr));
  BP_DCHECK(rte_pktmbuf_pkt_len(frame) <= frame->l2_len + mtu_bytes_);
  if (queue_.send({&frame, 1}) == 1) {
    counters_.sent_frames.add(1);
    return true;
  }
  rte_pktmbuf_free(frame);
  counters_.drop(PacketDrop::kQueueFull);
  return false;
}

uint32_t FrameSender::send_batch(std::span<rte_mbuf*> frames) noexcept {
  const uint32_t count = queue_.send(frames);
  BP_ASSERT(count <= frames.size());
  counters_.sent_frames.add(count);
  return count;
}

}  // namespace bedplate
