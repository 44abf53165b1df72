// The packet layer over one queue of a port: Ethernet with VLAN, ARP, IPv4, IPv6 with neighbour
// discovery, ICMP, UDP, IGMP and MLD, for datagram sockets (port_datagram_socket.h).
//
// It deliberately leaves out TCP, routing for others, and fragments, which it drops and counts. It
// gets its addresses only from the options. It does not probe for duplicates of its addresses
// before it uses them, but defends them (RFC 5227, RFC 4862).
//
// It has no thread, clock or timer: the caller pushes frames into receive(), passes in the time,
// and calls advance() in each round.
//
//     receive(burst): take each frame; then sockets with datagrams call their owners' received()
//     advance():
//       take the frames that the port sent to itself, and those that other shards handed over
//       neighbours: ask again, or give up: frames that waited are dropped, and their owners told
//       discovery, group reports: send what is due
//       sockets with datagrams call received(); sockets that wait for room call has_room()
//
//     take a frame: parse it; a bad one is dropped, and the cause counted
//       ARP, neighbour discovery -> discovery: learns MACs, answers for the port's addresses
//       UDP to one station -> the socket that fits best; if none is here, the shards that have its
//                             port; if none have it, ICMP refuses the datagram
//       UDP to many        -> each socket that takes it, here and on the other shards
//       IGMP, MLD          -> group reports: note when to answer a query
//       ICMP               -> answer an echo request; an error sets the path's MTU, and the socket
//                             tells its owner
//       (all but UDP and echo requests go to the other shards as well)
//
//     a socket sends (port_datagram_socket.h): find the route, make the frame, then
//       to this port itself           -> loop it
//       the next hop's MAC is unknown -> it waits for the answer
//       otherwise                     -> give it to the port, in bursts; a multicast frame that
//                                        sockets here may hear is looped as well
#pragma once

#include <cstdint>
#include <span>

#include "transport/dpdk/net/datagram_sender_datapath.h"
#include "transport/dpdk/net/discovery_datapath.h"
#include "transport/dpdk/net/group_reports_datapath.h"
#include "transport/dpdk/net/icmp_datapath.h"
#include "transport/dpdk/net/looped_frames_datapath.h"
#include "transport/dpdk/net/net_time.h"
#include "transport/dpdk/net/other_shards_datapath.h"
#include "transport/dpdk/net/path_mtus_datapath.h"
#include "transport/dpdk/net/port_shared_datapath.h"
#include "transport/dpdk/net/route_finder_datapath.h"
#include "transport/dpdk/net/socket_groups_datapath.h"
#include "transport/dpdk/net/socket_parts.h"
#include "transport/dpdk/net/socket_table_datapath.h"
#include "transport/dpdk/net/udp_ports_datapath.h"

namespace bedplate {

struct NetOptions {
  static constexpr uint32_t kAddressCountMax = Routes::kAddressCountMax - 1;

  const char* name = "";  // the port's; sockets join over this interface; outlives the stack
  IpPrefix addresses[kAddressCountMax];  // of both families; the stack adds the link-local one
  uint32_t address_count = 0;
  IpAddress gateway4;          // none: only stations on the link are reachable
  IpAddress gateway6;          // none: the same, unless it takes routers
  bool takes_routers = false;  // if gateway6 is none: follows an IPv6 router that announces itself
  uint16_t vlan = 0;           // 802.1Q tag of all frames; 0: none

  uint32_t socket_count_max = 64;  // open at a time; 1 to 4096
  // Each source of a group counts; so do the groups of its own IPv6 addresses; 32 to 4096.
  uint32_t membership_count_max = 256;
  uint32_t neighbour_count_max = 256;  // stations known at a time; 16 to 4096
  uint32_t waiting_count_max = 512;    // datagrams that wait for neighbours; 8 to 16384
  uint32_t path_count_max = 64;        // known paths with a smaller MTU than the link; 1 to 4096

  NetCounters* counters = nullptr;  // outlive the stack; nullptr: it uses its own
  PortShared* shared = nullptr;     // state shared by the queues of a port; outlives the stack
  uint32_t queue_index = 0;
};

// Invariants, checked by is_valid(): 1. The parts are valid. 2. A socket of the table is open.
// 3. If a started socket has datagrams, or one waits for space in the port's queue, the stack has
// noted it.
//
// Threads: its shard's; constructed before the seal, when it allocates all its memory.
class NetStack final : private NeighbourAsker {
 public:
  // Returns nullptr, or the mistake in `options` as a static text.
  static const char* check(const NetOptions& options) noexcept;

  // `queue` outlives the stack, and the stack outlives its sockets. Requires: check() returns
  // nullptr.
  NetStack(FrameQueue& queue, const NetOptions& options);
  ~NetStack();
  NetStack(const NetStack&) = delete;
  NetStack& operator=(const NetStack&) = delete;

  // Announces its addresses on the link, and solicits routers if it takes them. Call it once, when
  // the queue can send.
  void start(const NetTime& time) noexcept;

  // Takes a burst that the port received: calls the owners of sockets, and sends answers. Takes
  // ownership of the frames. Requires: at most FrameQueue::kBurstMax frames.
  void receive(std::span<rte_mbuf*> frames, const NetTime& time) noexcept;
  // Does the work that is due, serves waiting sockets, and takes the frames that other shards have
  // handed over. Call it in each round of the loop, after receive(), and no later than
  // next_deadline_ns(). Returns the count of the frames that it took and of the sockets that it
  // told of room. Cost when idle: a few comparisons.
  uint32_t advance(const NetTime& time) noexcept;
  // When advance() is due next, as NetTime::now_ns. Returns 0 if it is due at once, and
  // TimerQueue::kNever if no work is pending.
  uint64_t next_deadline_ns() const noexcept;

  // The IPv6 link-local address that it derives from the port's MAC address.
  const IpAddress& link_local() const noexcept { return link_local_; }
  const NetCounters& counters() const noexcept { return *counters_; }
  const Neighbours& neighbours() const noexcept { return neighbours_; }
  const Routes& routes() const noexcept { return routes_; }
  // The parts that its sockets use.
  const SocketParts& socket_parts() const noexcept { return parts_; }

  // Whether the invariants hold. Cost: a look at all sockets, neighbours and memberships.
  bool is_valid() const noexcept;

 private:
  // The origin of a frame.
  struct Origin {
    bool is_own = false;     // this port sent it to itself
    bool is_handed = false;  // another shard received it
  };

  // NeighbourAsker:
  void ask(const IpAddress& target, const rte_ether_addr* known) noexcept override;
  void send_waiting(rte_mbuf* frame, const rte_ether_addr& mac) noexcept override;
  void drop_waiting(rte_mbuf* frame, bool is_unresolved) noexcept override;

  void take_frame(rte_mbuf* frame, const Origin& origin) noexcept;
  PacketDrop take_packet(rte_mbuf* frame, ParsedPacket& packet, const Origin& origin,
                         bool& is_taken) noexcept;
  PacketDrop take_icmp(const ParsedPacket& packet, const Origin& origin) noexcept;
  PacketDrop take_datagram(rte_mbuf* frame, const ParsedPacket& packet, const Origin& origin,
                           bool& is_taken) noexcept;
  PacketDrop deliver_to_all(rte_mbuf* frame, const ParsedPacket& packet, bool& is_taken) noexcept;
  void tell_failure(const IcmpFailure& failure) noexcept;
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
  OtherShards others_;
  LoopedFrames looped_;
  RouteFinder route_finder_;
  UdpPorts ports_;
  SocketGroups groups_;
  SocketNotes notes_;
  NetTime time_;
  SocketParts parts_;
  IpAddress link_local_;
  // The groups that neighbour discovery needs.
  Memberships::Holder own_groups_ = Memberships::kNone;
};

}  // namespace bedplate
