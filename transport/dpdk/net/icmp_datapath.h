// ICMP: echo is answered, what cannot be delivered is refused, and errors that come back for
// datagrams that were sent are read.
//
// Neighbour discovery and MLD, which ICMPv6 carries too, are elsewhere (discovery_datapath.h,
// group_reports_datapath.h).
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/packet_datapath.h"
#include "transport/dpdk/net/rate_limit_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"

namespace bedplate {

// That a datagram which was sent did not arrive: what a router or its receiver says of it.
struct IcmpFailure {
  int error_number = 0;  // an errno value; 0: the message says nothing of this kind
  DatagramAddress from;  // of the datagram
  DatagramAddress to;
  uint32_t mtu_bytes = 0;  // with EMSGSIZE: what the way has
};

class Icmp {
 public:
  static constexpr uint32_t kRepliesPerSecond = 1000;
  static constexpr uint32_t kRefusalsPerSecond = 100;
  static constexpr uint32_t kBurst = 50;  // of each, at once

  // All outlive it.
  Icmp(FrameSender& sender, const Routes& routes, NetCounters& counters) noexcept
      : sender_(sender), routes_(routes), counters_(counters) {}

  // A message of a packet whose kind is kIcmp4 or kIcmp6. An echo is answered, to the station that
  // it came from, if it `may_answer`; an error is told. Returns why it was dropped, or kNone.
  Drop take(const Packet& packet, bool may_answer, uint64_t now_ns, IcmpFailure& failure) noexcept;
  // Says that no socket has the port that `packet`, a datagram to an own address, was sent to.
  void refuse(const Packet& packet, uint64_t now_ns) noexcept;

 private:
  void answer_echo(const Packet& packet) noexcept;
  void send(const Packet& packet, const IpAddress& from, rte_mbuf* message) noexcept;

  FrameSender& sender_;
  const Routes& routes_;
  NetCounters& counters_;
  RateLimit replies_{kRepliesPerSecond, kBurst};
  RateLimit refusals_{kRefusalsPerSecond, kBurst};
};

}  // namespace bedplate
