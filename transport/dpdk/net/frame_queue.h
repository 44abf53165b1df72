// One queue of a port, as the packet layer sees it: it takes frames to send, and tells what the
// port can do.
//
// The packet layer does no input or output of its own: received bursts are pushed into
// NetStack::receive(), and it sends through this queue. The port implements it (transport/dpdk);
// tests have a made-up one (tests/transport/dpdk/net/made_up_port.h).
//
// The packet layer needs this of mbufs: any thread may free one (pools are for many producers and
// many consumers); one may be in several frames at a time, so no device frees them by the fast way
// (RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE); their data lies behind them in their pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rte_ether.h>
#include <rte_mbuf.h>

namespace bedplate {

// Work that the port does on frames that it sends; software does the rest. For received frames the
// flags in each mbuf tell (RTE_MBUF_F_RX_*).
struct FrameOffloads {
  bool ipv4_checksum = false;  // RTE_ETH_TX_OFFLOAD_IPV4_CKSUM
  bool udp_checksum = false;   // RTE_ETH_TX_OFFLOAD_UDP_CKSUM
  // RTE_ETH_TX_OFFLOAD_MULTI_SEGS: without it, nothing is sent by reference: all is copied.
  bool multi_segment = false;
};

// Threads: its shard's. The port receives frames to all groups: a filter of a device has few
// places, and joins come at any time.
class FrameQueue {
 public:
  static constexpr uint32_t kBurstMax = 64;  // frames that are received at once

  virtual ~FrameQueue() = default;

  // Sends frames in their order. Returns how many the port took from the front: it owns these, and
  // frees them once they are sent; the rest stays the caller's.
  virtual uint32_t send(std::span<rte_mbuf*> frames) noexcept = 0;
  // Whether send() would take a frame. A port that cannot tell says so.
  virtual bool has_room() const noexcept = 0;
  // An empty mbuf of the port's pool, with RTE_PKTMBUF_HEADROOM and room for mtu_bytes() behind it;
  // nullptr: there is none.
  virtual rte_mbuf* allocate() noexcept = 0;
  // The mbuf in whose buffer `bytes` lies, of the pool of any port of this process; nullptr: it is
  // other memory. The direct one, never one that is attached to it. Cost: arithmetic.
  virtual rte_mbuf* find(const std::byte* bytes) const noexcept = 0;

  // These values do not change after the start.
  virtual rte_ether_addr mac() const noexcept = 0;
  virtual uint32_t mtu_bytes() const noexcept = 0;  // of the link: an IP packet's bytes
  virtual FrameOffloads offloads() const noexcept = 0;
};

}  // namespace bedplate
