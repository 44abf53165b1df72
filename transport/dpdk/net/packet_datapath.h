// Parses a frame: reads each header once, and checks every length and offset before it is used.
//
// It writes nothing, keeps no state, and reads no byte beyond the frame. All headers must be in the
// frame's first segment. The bytes of a datagram must be in one segment, the first or a later one.
#pragma once

#include <cstdint>

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "transport/dpdk/net/net_counters.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

enum class PacketKind : uint8_t { kArp, kUdp, kIcmp4, kIcmp6, kIgmp };

// The parsed headers of one frame. The pointers are valid as long as the frame.
struct ParsedPacket {
  PacketKind kind = PacketKind::kArp;
  rte_ether_addr from_mac = {};
  rte_ether_addr to_mac = {};
  IpAddress from;  // from here on ARP sets only `message` and `message_bytes`
  IpAddress to;
  uint8_t hops = 0;  // time to live, or hop limit
  Ecn ecn = Ecn::kNone;
  bool has_router_alert = false;
  const uint8_t* network = nullptr;  // the IP header
  uint32_t network_bytes = 0;        // from `network` to the packet's end in the first segment
  // ARP, ICMP, IGMP: the message, with a good checksum. UDP: the header.
  const uint8_t* message = nullptr;
  uint32_t message_bytes = 0;
  // For UDP only.
  uint16_t from_port = 0;
  uint16_t to_port = 0;
  std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
  rte_mbuf* payload_segment = nullptr;
};

// The rules for the frames that a port takes.
struct PacketFilter {
  rte_ether_addr mac = {};
  uint16_t vlan = 0;  // 0: no tag, or only a priority tag
  // For frames that the port sent to itself: they have no checksums yet, and may have no MAC
  // address.
  bool is_trusted = false;
};

// Fills in `packet` and returns kNone, or returns the cause of the drop and leaves `packet`
// undefined. Requires: the lengths in the mbufs are right. Threads: any.
PacketDrop parse_packet(rte_mbuf* frame, const PacketFilter& filter, ParsedPacket& packet) noexcept;

// The sum of RFC 1071 over the pseudo header of UDP and ICMPv6, not yet folded (it fits 21 bits).
uint32_t pseudo_header_sum(const IpAddress& from, const IpAddress& to, uint8_t protocol,
                           uint32_t bytes) noexcept;
// Folds such a sum to 16 bits.
uint16_t folded(uint32_t sum) noexcept;

}  // namespace bedplate
