// Finds the MAC addresses of stations on the link: ARP (RFC 826, RFC 5227) and neighbour discovery
// (RFC 4861). Asks for the addresses of others, answers for its own, and defends its own. If
// `takes_routers` is set, it uses the first IPv6 router that announces itself as the gateway.
//
// It does not probe before it uses an address, follow redirects, or take addresses from routers.
//
// Invariants, checked by is_valid(): 1. A router that announced itself is the IPv6 gateway, and its
// lifetime ends at the next deadline. 2. It sends at most kRouterAskMax router solicitations in a
// row. 3. Without `takes_routers` it follows no router and sends no router solicitation.
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/neighbours_datapath.h"
#include "transport/dpdk/net/packet_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"

namespace bedplate {

// Threads: the shard's.
class Discovery {
 public:
  static constexpr uint64_t kNever = Neighbours::kNever;
  static constexpr uint64_t kRouterAskNs = 4'000'000'000;  // RFC 4861, 10, as is the next constant
  static constexpr uint32_t kRouterAskMax = 3;
  // RFC 5227, 1.1. Each address is defended at most once in this time.
  static constexpr uint64_t kDefendNs = 10'000'000'000;

  // The arguments outlive it.
  Discovery(FrameSender& sender, Routes& routes, Neighbours& neighbours, NetCounters& counters,
            bool takes_routers) noexcept
      : sender_(sender),
        routes_(routes),
        neighbours_(neighbours),
        counters_(counters),
        takes_routers_(takes_routers) {}

  // Announces its addresses on the link. Solicits routers if it takes them and has no IPv6 gateway.
  void start(uint64_t now_ns) noexcept;
  // Asks for the MAC of `target` (NeighbourAsker::ask).
  void ask(const IpAddress& target, const rte_ether_addr* known) noexcept;

  // take_arp() takes a received ARP message; take_icmp6() takes one of ICMPv6 of the types 133 to
  // 137. Without `may_answer` it only learns: it neither answers nor defends an address. Returns
  // the cause of a drop, or kNone.
  PacketDrop take_arp(const ParsedPacket& packet, bool may_answer, uint64_t now_ns) noexcept;
  PacketDrop take_icmp6(const ParsedPacket& packet, bool may_answer, uint64_t now_ns) noexcept;

  // Does the work that is due at next_deadline_ns().
  void advance(uint64_t now_ns) noexcept;
  uint64_t next_deadline_ns() const noexcept { return deadline_ns_; }

  bool is_valid() const noexcept;

 private:
  // The parsed options of a message.
  struct Options {
    bool is_good = false;
    bool has_mac = false;  // the option of the expected type is present
    rte_ether_addr mac = {};
  };
  struct Advertisement {
    IpAddress target;
    IpAddress to;
    rte_ether_addr mac;
    uint8_t flags = 0;
  };

  static Options read_options(const ParsedPacket& packet, uint32_t offset,
                              uint8_t mac_type) noexcept;
  void send_arp(uint16_t operation, const IpAddress& from, const IpAddress& target,
                const rte_ether_addr* to) noexcept;
  void solicit(const IpAddress& target, const rte_ether_addr* known) noexcept;
  void ask_for_routers(uint64_t now_ns) noexcept;
  void advertise(const Advertisement& advertised) noexcept;
  void announce(const IpAddress& own) noexcept;
  void note_conflict(const IpAddress& own, uint64_t now_ns) noexcept;
  PacketDrop take_solicitation(const ParsedPacket& packet, bool may_answer,
                               uint64_t now_ns) noexcept;
  PacketDrop take_advertisement(const ParsedPacket& packet, bool may_answer,
                                uint64_t now_ns) noexcept;
  PacketDrop take_router(const ParsedPacket& packet, uint64_t now_ns) noexcept;

  FrameSender& sender_;
  Routes& routes_;
  Neighbours& neighbours_;
  NetCounters& counters_;
  bool takes_routers_;
  uint32_t router_asked_count_ = 0;
  uint64_t router_end_ns_ = 0;     // when the router's lifetime ends; 0: it follows no router
  uint64_t deadline_ns_ = kNever;  // of the next solicitation, or of the router's lifetime
  uint64_t next_defence_ns_[Routes::kAddressCountMax] = {};  // of each address
};

}  // namespace bedplate
