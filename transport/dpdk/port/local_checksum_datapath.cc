#include "transport/dpdk/port/local_checksum_datapath.h"

#include <cstdint>

#include <netinet/in.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

// The header at `offset` in the first segment of a frame; nullptr: the segment is too short.
template <typename Header>
const Header* header_at(const rte_mbuf* frame, uint32_t offset) noexcept {
  if (offset + sizeof(Header) > frame->data_len) return nullptr;
  return rte_pktmbuf_mtod_offset(frame, const Header*, offset);
}

bool has_local_checksum(const rte_mbuf* frame) noexcept {
  const auto* ether = header_at<rte_ether_hdr>(frame, 0);
  if (ether == nullptr) return false;
  uint32_t offset = sizeof *ether;
  rte_be16_t type = ether->ether_type;
  if (type == RTE_BE16(RTE_ETHER_TYPE_VLAN)) {
    const auto* tag = header_at<rte_vlan_hdr>(frame, offset);
    if (tag == nullptr) return false;
    type = tag->eth_proto;
    offset += sizeof *tag;
  }
  uint16_t sum = 0;
  if (type == RTE_BE16(RTE_ETHER_TYPE_IPV4)) {
    const auto* ip = header_at<rte_ipv4_hdr>(frame, offset);
    if (ip == nullptr || ip->next_proto_id != IPPROTO_UDP) return false;
    sum = rte_ipv4_phdr_cksum(ip, 0);
    offset += rte_ipv4_hdr_len(ip);
  } else if (type == RTE_BE16(RTE_ETHER_TYPE_IPV6)) {
    const auto* ip = header_at<rte_ipv6_hdr>(frame, offset);
    if (ip == nullptr || ip->proto != IPPROTO_UDP) return false;
    sum = rte_ipv6_phdr_cksum(ip, 0);
    offset += sizeof *ip;
  } else {
    return false;
  }
  const auto* udp = header_at<rte_udp_hdr>(frame, offset);
  return udp != nullptr && udp->dgram_cksum != 0 && udp->dgram_cksum == sum;
}

}  // namespace

void accept_local_checksums(std::span<rte_mbuf* const> frames) noexcept {
  for (rte_mbuf* frame : frames) {
    BP_DCHECK(frame->data_len <= frame->pkt_len && "its first piece is no longer than all of it");
    if (has_local_checksum(frame)) frame->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
  }
}

}  // namespace bedplate
