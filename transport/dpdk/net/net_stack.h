// The packet layer over one queue of a port: Ethernet with VLAN, ARP, IPv4, IPv6 with neighbour
// discovery, ICMP, UDP, IGMP and MLD, for datagram sockets (port_datagram_socket.h).
//
// It deliberately leaves out TCP, routing for others, reassembly and fragments (refused and
// counted), address configuration (addresses are the configuration's), probing for duplicates of
// its addresses before it uses them (it defends them: RFC 5227, RFC 4862).
//
// It has neither thread, clock nor timer: the caller pushes frames into receive(), passes in the
// time, and calls advance() when next_deadline_ns() has come.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transport/dpdk/net/datagram_sender_datapath.h"
#include "transport/dpdk/net/discovery_datapath.h"
#include "transport/dpdk/net/group_reports_datapath.h"
#include "transport/dpdk/net/icmp_datapath.h"
#include "transport/dpdk/net/path_mtus_datapath.h"
#include "transport/dpdk/net/port_shared_datapath.h"
#include "transport/dpdk/net/socket_table_datapath.h"
#include "transport/dpdk/net/token_bucket_datapath.h"

namespace bedplate {

// The time of an event. A burst has one time.
struct NetTime {
  uint64_t now_ns = 0;   // of monotonic_ns(), as EventLoop::now_ns()
  uint64_t wall_ns = 0;  // since 1970, for datagrams that are received; 0: unknown
};

struct NetOptions {
  static constexpr uint32_t kAddressCountMax = Routes::kAddressCountMax - 1;

  const char* name = "";  // the port's, which join() takes as the interface; outlives the stack
  IpPrefix addresses[kAddressCountMax];  // of both families; fe80::... is added by itself
  uint32_t address_count = 0;
  IpAddress gateway4;          // none: only stations on the link can be reached
  IpAddress gateway6;          // the same
  bool takes_routers = false;  // IPv6: follows routers that announce themselves, without gateway6
  uint16_t vlan = 0;           // 802.1Q: the tag of all frames; 0: none has one

  uint32_t socket_count_max = 64;       // open at a time; 1 to 4096
  uint32_t membership_count_max = 256;  // groups (with a source: each) of all sockets; 32 to 4096
  uint32_t neighbour_count_max = 256;   // stations known at a time; 16 to 4096
  uint32_t waiting_count_max = 512;     // datagrams, for stations that are asked; 8 to 16384
  uint32_t path_count_max = 64;         // paths known to be narrower than the link; 1 to 4096

  NetCounters* counters = nullptr;  // outlive the stack; nullptr: its own
  PortShared* shared = nullptr;     // of a port with several queues; outlives the stack
  uint32_t queue_index = 0;
};

// Invariants, which is_valid() looks at: 1. Those of its parts. 2. A socket of the table is open.
// 3. If a started socket has datagrams, or one waits for room, the stack has noted it, and serves
// it.
//
// Threads: its shard's; made before the seal, when it allocates all that it ever needs.
class NetStack final : private NeighbourAsker {
 public:
  static constexpr uint32_t kBurstMax = 64;

  // nullptr, or the mistake in `options`.
  static const char* check(const NetOptions& options) noexcept;

  // `queue` outlives it, its sockets do not. Requires: check() finds nothing.
  NetStack(FrameQueue& queue, const NetOptions& options);
  ~NetStack();
  NetStack(const NetStack&) = delete;
  NetStack& operator=(const NetStack&) = delete;

  // Announces its addresses on the link. Requires: called once, when the queue can send.
  void start(const NetTime& time) noexcept;

  // Takes a burst that the port received: calls sockets' owners, and sends answers. It owns the
  // frames from here on. Requires: at most kBurstMax.
  void receive(std::span<rte_mbuf*> frames, const NetTime& time) noexcept;
  // Does the work that is due, serves sockets that wait, and takes frames that other shards have
  // handed over. Call it in each round of the loop, after receive(), and at the latest at
  // next_deadline_ns(). Returns how much there was. Cost, if there is nothing: a few comparisons.
  uint32_t advance(const NetTime& time) noexcept;
  // 0: at once. TimerQueue::kNever: nothing is waited for.
  uint64_t next_deadline_ns() const noexcept;

  // The link-local address of IPv6 that it made from the port's MAC address.
  const IpAddress& link_local() const noexcept { return link_local_; }
  const NetCounters& counters() const noexcept { return *counters_; }
  const Neighbours& neighbours() const noexcept { return neighbours_; }
  const Routes& routes() const noexcept { return routes_; }
  const char* name() const noexcept { return options_.name; }

  // Whether the invariants hold. Cost: a look at all sockets, neighbours and memberships.
  bool is_valid() const noexcept;

  // ---- For its sockets --------------------------------------------------------------------------

  // The way of a datagram.
  struct Way {
    IpAddress from;
    uint32_t mtu_bytes = 0;
    bool is_own = false;             // to this port itself: nothing goes out
    rte_ether_addr mac = {};         // of the next hop, if not own
    Neighbour* waits_for = nullptr;  // its MAC is asked for; good until the next find_way()
  };
  // `from`: none, or one of the port's own. Returns 0 or an errno value.
  int find_way(const IpAddress& to, const IpAddress& from, Way& way) noexcept;
  void wait(Neighbour& neighbour, rte_mbuf* frame) noexcept { neighbours_.wait(neighbour, frame); }
  // Sends frames in their order. Returns how many the port took.
  uint32_t send(std::span<rte_mbuf*> frames) noexcept;
  DatagramSender& datagram_sender() noexcept { return datagram_sender_; }
  // Queues a frame that the next advance() receives; it may be on its way out as well, by one more
  // reference.
  void loop_back(rte_mbuf* frame) noexcept;
  // Whether a socket of this port, here or on another shard, may have joined the group.
  bool has_listeners(const IpAddress& group, uint16_t port) const noexcept;

  // Chooses a port if `socket` has none. Returns 0 or an errno value.
  int insert(PortDatagramSocket& socket) noexcept;
  void remove(PortDatagramSocket& socket) noexcept;
  // A socket has datagrams that came before it was started; or it waits for room.
  void note_pending() noexcept { has_pending_ = true; }
  void note_wants_room() noexcept { wants_room_ = true; }
  int change_membership(bool is_join, Memberships::Holder& holder, const IpAddress& group,
                        const IpAddress& source) noexcept;
  void leave_all(Memberships::Holder& holder) noexcept;
  bool accepts(const Memberships::Holder& holder, const IpAddress& group,
               const IpAddress& source) const noexcept {
    return memberships_.accepts(holder, group, source);
  }
  bool has_joined(const Memberships::Holder& holder, const IpAddress& group) const noexcept {
    return memberships_.has(holder, group);
  }
  FrameQueue& queue() noexcept { return sender_.queue(); }
  NetCounters& writable_counters() noexcept { return *counters_; }

 private:
  static constexpr uint32_t kLoopedMax = 256;
  static constexpr uint32_t kHandedControlPerSecond = 4000;
  static constexpr uint16_t kFirstFreePort = 49152;  // RFC 6335, 6

  // The origin of a frame.
  struct Origin {
    bool is_own = false;     // this port has sent it, to itself
    bool is_handed = false;  // another shard received it
  };

  // NeighbourAsker:
  void ask(const IpAddress& target, const rte_ether_addr* known) noexcept override;
  void send_waiting(rte_mbuf* frame, const rte_ether_addr& mac) noexcept override;
  void drop_waiting(rte_mbuf* frame, bool is_unresolved) noexcept override;

  void take_frame(rte_mbuf* frame, const Origin& origin) noexcept;
  Drop take_packet(rte_mbuf* frame, Packet& packet, const Origin& origin, bool& is_taken) noexcept;
  Drop take_icmp(const Packet& packet, const Origin& origin) noexcept;
  Drop take_datagram(rte_mbuf* frame, const Packet& packet, const Origin& origin,
                     bool& is_taken) noexcept;
  Drop deliver_to_all(rte_mbuf* frame, const Packet& packet, bool& is_taken) noexcept;
  bool hand_to_owners(rte_mbuf* frame, const Packet& packet, const Origin& origin) noexcept;
  void hand_to_all(rte_mbuf* frame) noexcept;
  void hand_over(rte_mbuf* frame, uint32_t queues, const Origin& origin) noexcept;
  void tell_failure(const IcmpFailure& failure) noexcept;
  bool is_port_taken(const PortDatagramSocket& socket, uint16_t port) const noexcept;
  int choose_port(PortDatagramSocket& socket) noexcept;
  void deliver_pending() noexcept;
  uint32_t take_looped() noexcept;
  uint32_t take_handed() noexcept;
  uint32_t tell_room() noexcept;
  void join_solicited_nodes() noexcept;

  NetOptions options_;
  NetCounters own_counters_;
  NetCounters* counters_;
  FrameSender sender_;
  DatagramSender datagram_sender_;
  Routes routes_;
  Neighbours neighbours_;
  Discovery discovery_;
  Memberships memberships_;
  GroupReports reports_;
  Icmp icmp_;
  PathMtus paths_;
  SocketTable sockets_;
  TokenBucket handed_control_{kHandedControlPerSecond, 256};
  NetTime time_;
  IpAddress link_local_;
  // Groups that neighbour discovery needs.
  Memberships::Holder own_groups_ = Memberships::kNone;
  rte_mbuf* looped_[kLoopedMax];
  uint32_t looped_count_ = 0;
  uint16_t next_free_port_ = kFirstFreePort;
  bool has_pending_ = false;  // a started socket has datagrams
  bool wants_room_ = false;
};

}  // namespace bedplate
