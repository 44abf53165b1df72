// Tells the routers of the link which groups are wanted, by IGMPv3 and MLDv2; by IGMPv2 and MLDv1
// if the querier speaks only these (RFC 3376, RFC 3810).
//
// A report has the present state of a group: after a change as TO_EX or TO_IN, which can express
// any change; in answer to a query as IS_EX or IS_IN. So a repeated report is never out of date. A
// query for some sources is answered with all wanted sources.
//
// Invariants, checked by is_valid(): 1. No report is due before next_deadline_ns(). 2. Between
// calls no report is under construction. 3. A change is reported twice, or up to seven times
// if the querier asks for more.
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/memberships_datapath.h"
#include "transport/dpdk/net/packet_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"

namespace bedplate {

// Threads: the shard's, but for changed(), which another thread may call before the start.
class GroupReports {
 public:
  static constexpr uint64_t kNever = LinkGroup::kNever;
  // The most between two reports of one change; the actual time is random.
  static constexpr uint64_t kReportIntervalNs = 1'000'000'000;
  // How long an older querier counts after its last query: RFC 3376, 8.12, and RFC 3810, 9.12, with
  // the default times of a querier (2 * 125 s + 10 s).
  static constexpr uint64_t kOldQuerierNs = 260'000'000'000;
  static constexpr uint32_t kRobustness = 2;  // reports of a change, unless a query asks for more

  // The arguments outlive it.
  GroupReports(FrameSender& sender, const Routes& routes, Memberships& memberships,
               NetCounters& counters) noexcept;

  // Notes that a socket joined or left `group`. The next advance() sends the first report. If the
  // group is not reported and nobody is a member, frees its entry.
  void changed(LinkGroup& group) noexcept;
  // take_igmp() takes a received IGMP message; take_mld() takes one of ICMPv6 of the types 130 to
  // 132 and 143. Only queries matter. Returns the cause of a drop, or kNone.
  PacketDrop take_igmp(const ParsedPacket& packet, uint64_t now_ns) noexcept;
  PacketDrop take_mld(const ParsedPacket& packet, uint64_t now_ns) noexcept;

  // Sends the reports that are due at next_deadline_ns().
  void advance(uint64_t now_ns) noexcept;
  uint64_t next_deadline_ns() const noexcept { return deadline_ns_; }

  // Whether the group is reported at all. Not reported: the groups of all stations (224.0.0.1,
  // ff02::1), and IPv6 groups that do not leave the station.
  static bool is_reported(const IpAddress& group) noexcept;

  bool is_valid() const noexcept;

 private:
  // The state of one family.
  struct Side {
    int family = 0;
    uint32_t robustness = kRobustness;
    uint64_t answer_ns = kNever;  // when to answer a query for all groups
    uint64_t old_until_ns = 0;    // the querier speaks IGMPv2 or MLDv1 until then
    rte_mbuf* frame = nullptr;    // the report under construction
    uint16_t record_count = 0;
  };
  Side& side_of(int family) noexcept { return sides_[family == AF_INET6]; }
  PacketDrop take_query(Side& side, const IpAddress& group, uint64_t delay_max_ns,
                        uint64_t now_ns) noexcept;
  uint64_t random_below(uint64_t limit) noexcept;
  void say(Side& side, const LinkGroup& group, bool is_change, uint64_t now_ns) noexcept;
  void say_old(const Side& side, const LinkGroup& group) noexcept;
  void add_record(Side& side, const LinkGroup& group, bool is_change) noexcept;
  void finish(Side& side) noexcept;
  void send(const Side& side, rte_mbuf* message, const IpAddress& to) noexcept;

  FrameSender& sender_;
  const Routes& routes_;
  Memberships& memberships_;
  NetCounters& counters_;
  Side sides_[2];
  uint64_t deadline_ns_ = kNever;
  uint64_t random_;
};

}  // namespace bedplate
