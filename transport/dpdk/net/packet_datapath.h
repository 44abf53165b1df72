// Parses a frame: reads each header once, and checks every length and offset before it is used.
//
// It writes nothing, keeps no state, and reads no byte beyond the frame's own. Headers must lie in
// the frame's first segment, and a datagram's bytes in one segment, whichever.
#pragma once

#include <cstdint>

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "transport/dpdk/net/net_counters.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

enum class PacketKind : uint8_t { kArp, kUdp, kIcmp4, kIcmp6, kIgmp };

// The headers of one frame, parsed. Its pointers are good as long as the frame.
struct Packet {
  PacketKind kind = PacketKind::kArp;
  rte_ether_addr from_mac = {};
  rte_ether_addr to_mac = {};
  IpAddress from;  // ARP sets none of these but `message`
  IpAddress to;
  uint8_t hops = 0;  // time to live; hop limit
  Ecn ecn = Ecn::kNone;
  bool has_router_alert = false;
  const uint8_t* network = nullptr;  // the IP header
  uint32_t network_bytes = 0;        // from it to the end of the packet in the first segment
  // ARP, ICMP, IGMP: the message, whose checksum was checked. UDP: the header.
  const uint8_t* message = nullptr;
  uint32_t message_bytes = 0;
  // For UDP only.
  uint16_t from_port = 0;
  uint16_t to_port = 0;
  std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
  rte_mbuf* payload_segment = nullptr;
};

// The frames that a port takes.
struct PacketFilter {
  rte_ether_addr mac = {};
  uint16_t vlan = 0;  // 0: no tag, or one that has a priority alone
  // For frames that the port sent to itself: no checksums yet, and perhaps no MAC address.
  bool is_trusted = false;
};

// Returns kNone and fills in `packet`; else `packet` is undefined. Requires: the mbufs' own lengths
// are right.
Drop parse_packet(rte_mbuf* frame, const PacketFilter& filter, Packet& packet) noexcept;

// The sum of RFC 1071 over the pseudo header of UDP and ICMPv6, not yet folded (it fits 20 bits).
uint32_t pseudo_header_sum(const IpAddress& from, const IpAddress& to, uint8_t protocol,
                           uint32_t bytes) noexcept;
// Folds it.
uint16_t folded(uint32_t sum) noexcept;

}  // namespace bedplate
