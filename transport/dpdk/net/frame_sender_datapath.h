// Makes frames and gives them to the port's queue: the packet layer's only output.
//
// The caller makes a frame from back to front: first the message, then the headers before it.
#pragma once

#include <cstdint>
#include <span>

#include "transport/dpdk/net/frame_queue.h"
#include "transport/dpdk/net/ip_words_datapath.h"
#include "transport/dpdk/net/net_counters.h"

namespace bedplate {

// Fields of the IP header.
struct IpFields {
  IpAddress from;
  IpAddress to;
  uint8_t protocol = 0;
  uint8_t traffic_class = 0;
  uint8_t hops = 64;
  bool alerts_routers = false;  // router alert (RFC 2113, RFC 2711), for IGMP and MLD
};

// Threads: the shard's. A header that does not fit the headroom of its frame is a programming
// error.
class FrameSender {
 public:
  // `queue` and `counters` outlive it. `vlan`: the tag of all frames; 0: none.
  FrameSender(FrameQueue& queue, NetCounters& counters, uint16_t vlan) noexcept
      : queue_(queue),
        counters_(counters),
        offloads_(queue.offloads()),
        mac_(queue.mac()),
        mtu_bytes_(queue.mtu_bytes()),
        vlan_(vlan) {}

  FrameQueue& queue() noexcept { return queue_; }
  const FrameOffloads& offloads() const noexcept { return offloads_; }
  const rte_ether_addr& mac() const noexcept { return mac_; }
  uint32_t mtu_bytes() const noexcept { return mtu_bytes_; }

  // Makes a frame with `bytes` undefined bytes for a message. Returns nullptr if no buffer is free,
  // or a buffer is too short, and counts kNoBuffer.
  rte_mbuf* make(uint32_t bytes) noexcept;

  // Puts the IP header before the frame's bytes. DF is set: nothing is fragmented. The port
  // computes the IPv4 checksum if it can and the frame has RTE_MBUF_F_TX_IPV4; otherwise this does.
  void put_ip(rte_mbuf* frame, const IpFields& fields) const noexcept;
  void put_ethernet(rte_mbuf* frame, uint16_t ether_type, const rte_ether_addr& to) const noexcept;
  // Sets the destination of a frame that has an Ethernet header.
  static void set_destination(rte_mbuf* frame, const rte_ether_addr& to) noexcept;

  // Puts the IPv6 and Ethernet headers before an ICMPv6 message, and sets its checksum.
  void put_icmp6(rte_mbuf* frame, const IpFields& fields, const rte_ether_addr& to) const noexcept;

  // Takes ownership of the frame. Returns whether the port took it. Frees a refused frame, and
  // counts kQueueFull.
  bool send(rte_mbuf* frame) noexcept;
  // Sends frames in their order. Returns how many the port took, from the front; the others stay
  // the caller's.
  uint32_t send_batch(std::span<rte_mbuf*> frames) noexcept;

 private:
  FrameQueue& queue_;
  NetCounters& counters_;
  FrameOffloads offloads_;
  rte_ether_addr mac_;
  uint32_t mtu_bytes_;
  uint16_t vlan_;
};

}  // namespace bedplate
