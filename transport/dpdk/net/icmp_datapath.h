// ICMP: answers echo requests, refuses datagrams to a port without a socket, and reads the errors
// that come back for sent datagrams.
//
// ICMPv6 also carries neighbour discovery and MLD: discovery_datapath.h and
// group_reports_datapath.h handle these.
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/packet_datapath.h"
#include "transport/dpdk/net/packet_limit_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"

namespace bedplate {

// An error message of a router or the receiver: a datagram did not arrive. Anybody can forge one,
// so the caller checks that a socket could have sent the datagram.
struct IcmpFailure {
  int error_number = 0;  // an errno value; 0: the message is not an error
  DatagramAddress from;  // the datagram's source
  DatagramAddress to;
  uint32_t mtu_bytes = 0;  // with EMSGSIZE: the path's MTU
};

// Threads: the shard's.
class Icmp {
 public:
  static constexpr uint32_t kRepliesPerSecond = 1000;
  static constexpr uint32_t kRefusalsPerSecond = 100;
  static constexpr uint32_t kBurst = 50;  // replies at once, and as many refusals

  // The arguments outlive it.
  Icmp(FrameSender& sender, const Routes& routes, NetCounters& counters) noexcept
      : sender_(sender), routes_(routes), counters_(counters) {}

  // Takes a packet of the kind kIcmp4 or kIcmp6. If `may_answer`, answers an echo request to the
  // MAC address that sent the frame. Fills in `failure` from an error message. Returns the cause of
  // a drop, or kNone.
  PacketDrop take(const ParsedPacket& packet, bool may_answer, uint64_t now_ns,
                  IcmpFailure& failure) noexcept;
  // Tells the sender of `packet`, a datagram to one of our addresses, that no socket has its port.
  // Does nothing if the frame went to a broadcast or multicast MAC.
  void refuse(const ParsedPacket& packet, uint64_t now_ns) noexcept;

 private:
  void answer_echo(const ParsedPacket& packet) noexcept;
  void send(const ParsedPacket& packet, const IpAddress& from, rte_mbuf* message) noexcept;

  FrameSender& sender_;
  const Routes& routes_;
  NetCounters& counters_;
  PacketLimit replies_{kRepliesPerSecond, kBurst};
  PacketLimit refusals_{kRefusalsPerSecond, kBurst};
};

}  // namespace bedplate
