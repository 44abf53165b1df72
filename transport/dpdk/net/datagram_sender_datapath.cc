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

rte_mbuf* DatagramSender::copy(const DatagramTerms& terms) noexcept {
  rte_mbuf* frame = sender_.make(terms.byte_count);
  if (frame == nullptr) return nullptr;
  BP_DCHECK(terms.byte_count == 0 || terms.bytes != nullptr);
  std::copy_n(terms.bytes, terms.byte_count, rte_pktmbuf_mtod(frame, std::byte*));
  counters_.copied_bytes.add(terms.byte_count);
  return frame;
}

// The headers get an mbuf of their own. The bytes' mbuf itself follows it, once more referred to,
// where it has just these bytes, as one that was received has; an mbuf that is attached to it where
// they are other ones of it.
rte_mbuf* DatagramSender::refer(const DatagramTerms& terms) noexcept {
  rte_mbuf* owner = sender_.queue().find(terms.bytes);
  if (owner == nullptr) return nullptr;
  BP_DCHECK(rte_mbuf_refcnt_read(owner) > 0 && "the sender still has the bytes");
  const auto* buffer = static_cast<const std::byte*>(owner->buf_addr);
  const auto offset = static_cast<uint32_t>(terms.bytes - buffer);
  if (terms.bytes < buffer || offset + terms.byte_count > owner->buf_len) return nullptr;
  rte_mbuf* frame = sender_.make(0);
  if (frame == nullptr) return nullptr;
  rte_mbuf* piece = owner;
  if (owner->data_off == offset && owner->data_len == terms.byte_count && owner->nb_segs == 1 &&
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
    piece->data_len = static_cast<uint16_t>(terms.byte_count);
    piece->pkt_len = terms.byte_count;
  }
  BP_DCHECK(piece->nb_segs == 1 && piece->data_len == terms.byte_count);
  BP_DCHECK(rte_pktmbuf_mtod(piece, const std::byte*) == terms.bytes);
  frame->next = piece;
  frame->nb_segs = 2;
  frame->pkt_len = terms.byte_count;
  return frame;
}

uint32_t DatagramSender::sum_of(const DatagramTerms& terms, bool is_reference) noexcept {
  if (is_reference && terms.bytes == summed_bytes_ && terms.byte_count == summed_count_) {
    return sum_;
  }
  const uint16_t sum = rte_raw_cksum(terms.bytes, terms.byte_count);
  counters_.summed_bytes.add(terms.byte_count);
  if (is_reference) {
    summed_bytes_ = terms.bytes;
    summed_count_ = terms.byte_count;
    sum_ = sum;
  }
  return sum;
}

rte_mbuf* DatagramSender::make(const DatagramTerms& terms) noexcept {
  const bool may_refer = sender_.offloads().multi_segment && terms.byte_count > 0;
  rte_mbuf* frame = may_refer ? refer(terms) : nullptr;
  const bool is_reference = frame != nullptr;
  if (!is_reference) frame = copy(terms);
  if (frame == nullptr) return nullptr;

  const bool is_ipv6 = terms.ip.to.family == AF_INET6;
  BP_DCHECK(terms.ip.from.family == terms.ip.to.family);
  BP_DCHECK(rte_pktmbuf_pkt_len(frame) == terms.byte_count);
  BP_DCHECK(terms.byte_count + header_bytes(terms.ip.to.family) <= sender_.mtu_bytes());
  const uint32_t bytes = uint32_t{sizeof(rte_udp_hdr)} + terms.byte_count;
  rte_udp_hdr header;
  header.src_port = rte_cpu_to_be_16(terms.from_port);
  header.dst_port = rte_cpu_to_be_16(terms.to_port);
  header.dgram_len = rte_cpu_to_be_16(static_cast<uint16_t>(bytes));
  header.dgram_cksum = 0;
  const uint32_t pseudo = pseudo_header_sum(terms.ip.from, terms.ip.to, IPPROTO_UDP, bytes);
  if (sender_.offloads().udp_checksum) {
    frame->ol_flags |=
        RTE_MBUF_F_TX_UDP_CKSUM | (is_ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4);
    header.dgram_cksum = folded(pseudo);
  } else {
    const uint32_t sum = __rte_raw_cksum(&header, sizeof header, pseudo);
    const auto made = static_cast<uint16_t>(~folded(sum + sum_of(terms, is_reference)));
    header.dgram_cksum = made != 0 ? made : uint16_t{0xffff};  // RFC 768: 0 says that there is none
    if (sender_.offloads().ipv4_checksum && !is_ipv6) frame->ol_flags |= RTE_MBUF_F_TX_IPV4;
  }
  char* start = rte_pktmbuf_prepend(frame, sizeof header);
  BP_ASSERT(start != nullptr);
  std::memcpy(start, &header, sizeof header);
  frame->l4_len = sizeof header;
  IpTerms ip = terms.ip;
  ip.protocol = IPPROTO_UDP;
  sender_.put_ip(frame, ip);
  sender_.put_ethernet(frame, is_ipv6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4, {});
  return frame;
}

}  // namespace bedplate
