// ICMP: answers echo requests, refuses datagrams to a port without a socket, and reads the errors
// that come back for sent datagrams.
//
// ICMPv6 also carries neighbour discovery and MLD: discovery_datapath.h and
// group_reports_datapath.h handle these.
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/packet_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"
#include "transport/dpdk/net/token_bucket_datapath.h"

namespace bedplate {

// An error message of a router or the receiver: a datagram did not arrive.
struct IcmpFailure {
  int error_number = 0;  // an errno value; 0: the message is no such error
  DatagramAddress from;  // the datagram's source
  DatagramAddress to;
  uint32_t mtu_bytes = 0;  // with EMSGSIZE: the path's MTU
};

class Icmp {
 public:
  static constexpr uint32_t kRepliesPerSecond = 1000;
  static constexpr uint32_t kRefusalsPerSecond = 100;
  static constexpr uint32_t kBurst = 50;  // of each kind, at once

  // The arguments outlive it.
  Icmp(FrameSender& sender, const Routes& routes, NetCounters& counters) noexcept
      : sender_(sender), routes_(routes), counters_(counters) {}

  // Takes a packet of the kind kIcmp4 or kIcmp6. Answers an echo request, to the station that sent
  // the frame, if `may_answer`. An error goes into `failure`. Returns the cause of a drop, or
  // kNone.
  PacketDrop take(const ParsedPacket& packet, bool may_answer, uint64_t now_ns,
                  IcmpFailure& failure) noexcept;
  // Tells the sender of `packet`, a datagram to one of our addresses, that no socket has its port.
  void refuse(const ParsedPacket& packet, uint64_t now_ns) noexcept;

 private:
  void answer_echo(const ParsedPacket& packet) noexcept;
  void send(const ParsedPacket& packet, const IpAddress& from, rte_mbuf* message) noexcept;

  FrameSender& sender_;
  const Routes& routes_;
  NetCounters& counters_;
  TokenBucket replies_{kRepliesPerSecond, kBurst};
  TokenBucket refusals_{kRefusalsPerSecond, kBurst};
};

}  // namespace bedplate
