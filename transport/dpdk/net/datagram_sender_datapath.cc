#include "transport/dpdk/net/datagram_sender_datapath.h"

#include <algorithm>

#include <rte_ip.h>
#include <rte_udp.h>

#include "platform/assert.h"
#include "transport/dpdk/net/packet_datapath.h"

namespace bedplate {

uint32_t DatagramSender::header_bytes(int family) noexcept {
  return uint32_t{sizeof(rte_udp_hdr)} +
         (family == AF_INET6 ? uint32_t{sizeof(rte_ipv6_hdr)} : uint32_t{sizeof(rte_ipv4_hdr)});
}

rte_mbuf* DatagramSender::copy(const DatagramFields& fields) noexcept {
  rte_mbuf* frame = sender_.make(fields.byte_count);
  if (frame == nullptr) return nullptr;
  BP_DCHECK(fields.byte_count == 0 || fields.bytes != nullptr);
  std::copy_n(fields.bytes, fields.byte_count, rte_pktmbuf_mtod(frame, std::byte*));
  counters_.copied_bytes.add(fields.byte_count);
  return frame;
}

// The headers get an mbuf of their own. If the bytes' mbuf holds exactly these bytes, as a received
// mbuf does, it follows itself, by another reference. Otherwise an mbuf attached to it follows.
rte_mbuf* DatagramSender::refer(const DatagramFields& fields) noexcept {
  rte_mbuf* owner = sender_.queue().find(fields.bytes);
  if (owner == nullptr) return nullptr;
  BP_DCHECK(rte_mbuf_refcnt_read(owner) > 0 && "the sender still has the bytes");
  const auto* buffer = static_cast<const std::byte*>(owner->buf_addr);
  const auto offset = static_cast<uint32_t>(fields.bytes - buffer);
  if (fields.bytes < buffer || offset + fields.byte_count > owner->buf_len) return nullptr;
  rte_mbuf* frame = sender_.make(0);
  if (frame == nullptr) return nullptr;
  rte_mbuf* piece = owner;
  if (owner->data_off == offset && owner->data_len == fields.byte_count && owner->nb_segs == 1 &&
      owner->next == nullptr) {
    rte_mbuf_refcnt_update(owner, 1);
  } else {
    piece = sender_.make(0);
    if (piece == nullptr) {
      rte_pktmbuf_free(frame);
      return nullptr;
    }
    rte_pktmbuf_attach(piece, owner);
    piece->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
    piece->data_off = static_cast<uint16_t>(offset);
    piece->data_len = static_cast<uint16_t>(fields.byte_count);
    piece->pkt_len = fields.byte_count;
  }
  BP_DCHECK(piece->nb_segs == 1 && piece->data_len == fields.byte_count);
  BP_DCHECK(rte_pktmbuf_mtod(piece, const std::byte*) == fields.bytes);
  frame->next = piece;
  frame->nb_segs = 2;
  frame->pkt_len = fields.byte_count;
  return frame;
}

uint32_t DatagramSender::sum_of(const DatagramFields& fields, bool is_reference) noexcept {
  if (is_reference && fields.bytes == summed_bytes_ && fields.byte_count == summed_count_) {
    return sum_;
  }
  const uint16_t sum = rte_raw_cksum(fields.bytes, fields.byte_count);
  counters_.summed_bytes.add(fields.byte_count);
  if (is_reference) {
    summed_bytes_ = fields.bytes;
    summed_count_ = fields.byte_count;
    sum_ = sum;
  }
  return sum;
}

rte_mbuf* DatagramSender::make(const DatagramFields& fields) noexcept {
  const bool may_refer = sender_.offloads().multi_segment && fields.byte_count > 0;
  rte_mbuf* frame = may_refer ? refer(fields) : nullptr;
  const bool is_reference = frame != nullptr;
  if (!is_reference) frame = copy(fields);
  if (frame == nullptr) return nullptr;

  const bool is_ipv6 = fields.ip.to.family == AF_INET6;
  BP_DCHECK(fields.ip.from.family == fields.ip.to.family);
  BP_DCHECK(rte_pktmbuf_pkt_len(frame) == fields.byte_count);
  BP_DCHECK(fields.byte_count + header_bytes(fields.ip.to.family) <= sender_.mtu_bytes());
  const uint32_t bytes = uint32_t{sizeof(rte_udp_hdr)} + fields.byte_count;
  rte_udp_hdr header;
  header.src_port = rte_cpu_to_be_16(fields.from_port);
  header.dst_port = rte_cpu_to_be_16(fields.to_port);
  header.dgram_len = rte_cpu_to_be_16(static_cast<uint16_t>(bytes));
  header.dgram_cksum = 0;
  const uint32_t pseudo = pseudo_header_sum(fields.ip.from, fields.ip.to, IPPROTO_UDP, bytes);
  if (sender_.offloads().udp_checksum) {
    frame->ol_flags |=
        RTE_MBUF_F_TX_UDP_CKSUM | (is_ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4);
    header.dgram_cksum = folded(pseudo);
  } else {
    const uint32_t sum = __rte_raw_cksum(&header, sizeof header, pseudo);
    const auto made = static_cast<uint16_t>(~folded(sum + sum_of(fields, is_reference)));
    header.dgram_cksum = made != 0 ? made : uint16_t{0xffff};  // RFC 768: 0 means no checksum
    if (sender_.offloads().ipv4_checksum && !is_ipv6) frame->ol_flags |= RTE_MBUF_F_TX_IPV4;
  }
  char* start = rte_pktmbuf_prepend(frame, sizeof header);
  BP_ASSERT(start != nullptr);
  std::memcpy(start, &header, sizeof header);
  frame->l4_len = sizeof header;
  IpFields ip = fields.ip;
  ip.protocol = IPPROTO_UDP;
  sender_.put_ip(frame, ip);
  sender_.put_ethernet(frame, is_ipv6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4, {});
  return frame;
}

}  // namespace bedplate
