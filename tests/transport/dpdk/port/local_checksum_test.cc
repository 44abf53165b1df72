// Accepts the sum over the pseudo header, which the kernel leaves for a device to complete, and no
// other sum. A frame may end anywhere; nothing behind its end is read.
#include "transport/dpdk/port/local_checksum_datapath.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <netinet/in.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// A frame in memory of its own, without a pool.
struct Frame {
  std::vector<std::byte> bytes = std::vector<std::byte>(128);
  uint32_t udp_offset = 0;

  // `sum_change` is added to the sum over the pseudo header.
  Frame(bool is_ipv6, bool has_tag, uint16_t sum_change) {
    auto* ether = at<rte_ether_hdr>(0);
    const rte_be16_t type = rte_cpu_to_be_16(is_ipv6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
    ether->ether_type = has_tag ? rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) : type;
    uint32_t offset = sizeof *ether;
    if (has_tag) {
      at<rte_vlan_hdr>(offset)->eth_proto = type;
      offset += sizeof(rte_vlan_hdr);
    }
    uint16_t sum = 0;
    if (is_ipv6) {
      auto* ip = at<rte_ipv6_hdr>(offset);
      ip->payload_len = rte_cpu_to_be_16(16);
      ip->proto = IPPROTO_UDP;
      std::memset(ip->src_addr, 0x21, sizeof ip->src_addr);
      std::memset(ip->dst_addr, 0x43, sizeof ip->dst_addr);
      sum = rte_ipv6_phdr_cksum(ip, 0);
      udp_offset = offset + static_cast<uint32_t>(sizeof *ip);
    } else {
      auto* ip = at<rte_ipv4_hdr>(offset);
      ip->version_ihl = 0x46;  // with an option
      ip->total_length = rte_cpu_to_be_16(24 + 16);
      ip->next_proto_id = IPPROTO_UDP;
      ip->src_addr = 0x01020304;
      ip->dst_addr = 0x05060708;
      sum = rte_ipv4_phdr_cksum(ip, 0);
      udp_offset = offset + 24;
    }
    at<rte_udp_hdr>(udp_offset)->dgram_cksum = static_cast<rte_be16_t>(sum + sum_change);
  }

  template <typename Header>
  Header* at(uint32_t offset) {
    return reinterpret_cast<Header*>(bytes.data() + offset);
  }
  bool is_accepted(size_t length = 128) {
    rte_mbuf mbuf = {};
    mbuf.buf_addr = bytes.data();
    mbuf.data_len = static_cast<uint16_t>(length);
    mbuf.pkt_len = static_cast<uint32_t>(length);
    rte_mbuf* const frames[] = {&mbuf};
    accept_local_checksums(frames);
    return (mbuf.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD;
  }
};

}  // namespace

TEST_GROUP(LocalChecksum){};

TEST(LocalChecksum, TheSumOverThePseudoHeaderIsGood) {
  for (const bool is_ipv6 : {false, true}) {
    for (const bool has_tag : {false, true}) {
      CHECK(Frame(is_ipv6, has_tag, 0).is_accepted());
      CHECK_FALSE(Frame(is_ipv6, has_tag, 1).is_accepted());
    }
  }
}

TEST(LocalChecksum, NoneIsNotOne) {
  Frame frame(false, false, 0);
  frame.at<rte_udp_hdr>(frame.udp_offset)->dgram_cksum = 0;
  CHECK_FALSE(frame.is_accepted());
}

TEST(LocalChecksum, OtherProtocolsAreLeftAlone) {
  Frame frame(false, false, 0);
  frame.at<rte_ipv4_hdr>(sizeof(rte_ether_hdr))->next_proto_id = IPPROTO_TCP;
  CHECK_FALSE(frame.is_accepted());
  Frame other(false, false, 0);
  other.at<rte_ether_hdr>(0)->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP);
  CHECK_FALSE(other.is_accepted());
}

TEST(LocalChecksum, AFrameMayEndAnywhere) {
  for (const bool is_ipv6 : {false, true}) {
    for (const bool has_tag : {false, true}) {
      Frame whole(is_ipv6, has_tag, 0);
      const size_t headers = whole.udp_offset + sizeof(rte_udp_hdr);
      for (size_t length = 0; length < headers; ++length) {
        Frame cut = whole;
        cut.bytes.resize(length);
        cut.bytes.shrink_to_fit();  // a sanitizer notices a read behind the end
        CHECK_FALSE(cut.is_accepted(length));
      }
      CHECK(Frame(is_ipv6, has_tag, 0).is_accepted(headers));
    }
  }
}
