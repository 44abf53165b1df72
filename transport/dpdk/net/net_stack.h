// The packet layer over one queue of a port: Ethernet with VLAN, ARP, IPv4, IPv6 with neighbour
// discovery, ICMP, UDP, IGMP and MLD, for datagram sockets (port_datagram_socket.h).
//
// What it deliberately does not do: TCP, routing for others, reassembly and fragments (refused and
// counted), address configuration (addresses are the configuration's), probing for duplicates of its
// addresses before it uses them (it defends them: RFC 5227, RFC 4862).
//
// It has neither thread, clock nor timer: frames are pushed into receive(), time is passed in, and
// advance() is called when next_deadline_ns() has come.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transport/dpdk/net/frame_queue.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/ip_address.h"

namespace bedplate {

class PortDatagramSocket;
class PortShared;

// When something happens. A burst has one time.
struct NetTime {
  uint64_t now_ns = 0;   // of monotonic_ns(), as EventLoop::now_ns()
  uint64_t wall_ns = 0;  // since 1970, for datagrams that are received; 0: unknown
};

struct NetOptions {
  static constexpr uint32_t kAddressCountMax = 16;

  const char* name = "";  // the port's, which join() takes as the interface; outlives the stack
  IpPrefix addresses[kAddressCountMax];  // of both families; fe80::... is added by itself
  uint32_t address_count = 0;
  IpAddress gateway4;          // none: only what is on the link can be reached
  IpAddress gateway6;          // the same
  bool takes_routers = false;  // IPv6: routers that announce themselves, where gateway6 is none
  uint16_t vlan = 0;           // 802.1Q: the tag of all frames; 0: none has one

  uint32_t socket_count_max = 64;       // open at a time; 1 to 4096
  uint32_t membership_count_max = 256;  // groups (with a source: each) of all sockets
  uint32_t neighbour_count_max = 256;   // stations known at a time; 16 to 65536
  uint32_t path_count_max = 64;         // paths known to be narrower than the link

  NetCounters* counters = nullptr;  // outlive the stack; nullptr: its own
  PortShared* shared = nullptr;     // of a port with several queues; outlives the stack
  uint32_t queue_index = 0;
};

// Threads: its shard's; made before the seal, when it allocates all that it ever needs.
class NetStack {
 public:
  // nullptr, or what is wrong with `options`.
  static const char* check(const NetOptions& options) noexcept;

  // `queue` outlives it, its sockets do not. Requires: check() finds nothing.
  NetStack(FrameQueue& queue, const NetOptions& options);
  ~NetStack();
  NetStack(const NetStack&) = delete;
  NetStack& operator=(const NetStack&) = delete;

  // Tells the link which addresses it has. Requires: called once, when the queue can send.
  void start(const NetTime& time) noexcept;

  // Takes a burst that the port received: calls sockets' owners, and sends what is to be answered.
  // The frames are its own from here on. Requires: at most kBurstMax.
  static constexpr uint32_t kBurstMax = 64;
  void receive(std::span<rte_mbuf*> frames, const NetTime& time) noexcept;
  // Does what is due: also what sockets wait for, and what other shards have handed over. To be
  // called in each round of the loop that receives nothing, at the latest at next_deadline_ns().
  // Returns how much was done. Cost, where nothing is due: a few comparisons.
  uint32_t advance(const NetTime& time) noexcept;
  // 0: at once. TimerQueue::kNever: nothing is waited for.
  uint64_t next_deadline_ns() const noexcept;

  // The link-local address of IPv6 that it has made of the port's MAC address.
  const IpAddress& link_local() const noexcept { return link_local_; }
  const NetCounters& counters() const noexcept { return *counters_; }

  // Whether the invariants hold. Cost: a look at all sockets, neighbours and memberships.
  bool is_valid() const noexcept;

 private:
  IpAddress link_local_;
  NetCounters* counters_ = nullptr;
};

}  // namespace bedplate
