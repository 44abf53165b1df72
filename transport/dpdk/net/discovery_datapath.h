// Finds the MAC addresses of stations on the link: ARP (RFC 826, RFC 5227) and neighbour discovery
// (RFC 4861). Asks for the addresses of others, answers for its own, defends them, and follows the
// routers of IPv6 that announce themselves, if it is to.
//
// It does not probe before it uses an address, follow redirects, or take addresses from routers.
//
// Invariants, which is_valid() looks at: 1. A router that announced itself is the gateway of IPv6,
// and the next deadline is the end of its time; there is one only if such routers are followed.
// 2. It asks for routers kRouterAskMax times in a row at most, and not at all if none are followed.
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/neighbours_datapath.h"
#include "transport/dpdk/net/packet_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"

namespace bedplate {

class Discovery {
 public:
  static constexpr uint64_t kNever = Neighbours::kNever;
  static constexpr uint64_t kRouterAskNs = 4'000'000'000;  // RFC 4861, 10, as is that below
  static constexpr uint32_t kRouterAskMax = 3;
  static constexpr uint64_t kDefendNs = 10'000'000'000;  // RFC 5227, 1.1

  // All outlive it.
  Discovery(FrameSender& sender, Routes& routes, Neighbours& neighbours, NetCounters& counters,
            bool takes_routers) noexcept
      : sender_(sender),
        routes_(routes),
        neighbours_(neighbours),
        counters_(counters),
        takes_routers_(takes_routers) {}

  // Announces its addresses on the link, and asks for routers.
  void start(uint64_t now_ns) noexcept;
  // Asks for the MAC of `target` (NeighbourAsker::ask).
  void ask(const IpAddress& target, const rte_ether_addr* known) noexcept;

  // Takes a received message of ARP, or of ICMPv6 of the types 133 to 137. Answers it only if it
  // `may_answer`. Returns why it was dropped, or kNone.
  Drop take_arp(const Packet& packet, bool may_answer, uint64_t now_ns) noexcept;
  Drop take_icmp6(const Packet& packet, bool may_answer, uint64_t now_ns) noexcept;

  // Does the work that is due at next_deadline_ns().
  void advance(uint64_t now_ns) noexcept;
  uint64_t next_deadline_ns() const noexcept { return deadline_ns_; }

  bool is_valid() const noexcept;

 private:
  // The options of a message, as parsed.
  struct Options {
    bool is_good = false;
    bool has_mac = false;  // of the type that was looked for
    rte_ether_addr mac = {};
  };
  struct Advertisement {
    IpAddress target;
    IpAddress to;
    rte_ether_addr mac;
    uint8_t flags = 0;
  };

  static Options read_options(const Packet& packet, uint32_t offset, uint8_t mac_type) noexcept;
  void send_arp(uint16_t operation, const IpAddress& from, const IpAddress& target,
                const rte_ether_addr* to) noexcept;
  void solicit(const IpAddress& target, const rte_ether_addr* known) noexcept;
  void ask_for_routers(uint64_t now_ns) noexcept;
  void advertise(const Advertisement& advertised) noexcept;
  void announce(const IpAddress& own) noexcept;
  void note_conflict(const IpAddress& own, uint64_t now_ns) noexcept;
  Drop take_solicitation(const Packet& packet, bool may_answer, uint64_t now_ns) noexcept;
  Drop take_advertisement(const Packet& packet, bool may_answer, uint64_t now_ns) noexcept;
  Drop take_router(const Packet& packet, uint64_t now_ns) noexcept;

  FrameSender& sender_;
  Routes& routes_;
  Neighbours& neighbours_;
  NetCounters& counters_;
  bool takes_routers_;
  uint32_t router_asked_count_ = 0;
  uint64_t router_end_ns_ = 0;     // 0: no router has announced itself
  uint64_t deadline_ns_ = kNever;  // of asking again, or of the router's end
  uint64_t next_defence_ns_ = 0;
};

}  // namespace bedplate
