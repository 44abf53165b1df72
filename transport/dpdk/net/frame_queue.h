// One queue of a port, as the packet layer sees it: it takes frames to send, and says what the port
// can do.
//
// The packet layer does no input or output of its own. The port pushes received bursts into
// NetStack::receive(), and the packet layer sends through this queue. The port implements it
// (transport/dpdk); tests have a fake one (tests/transport/dpdk/net/made_up_port.h).
//
// The packet layer relies on these properties of mbufs: any thread may free one (pools have many
// producers and many consumers); an mbuf may be in several frames at a time, so no device uses
// RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE; the buffer of an mbuf follows it in its pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rte_ether.h>
#include <rte_mbuf.h>

namespace bedplate {

// The port's offloads for frames that it sends; software does the rest. For a received frame the
// flags of its mbuf (RTE_MBUF_F_RX_*) say what the port has checked.
struct FrameOffloads {
  bool ipv4_checksum = false;  // RTE_ETH_TX_OFFLOAD_IPV4_CKSUM
  bool udp_checksum = false;   // RTE_ETH_TX_OFFLOAD_UDP_CKSUM
  // RTE_ETH_TX_OFFLOAD_MULTI_SEGS. Without it all bytes are copied, and none sent by reference.
  bool multi_segment = false;
};

// Threads: its shard's. The port receives frames to all groups, because a device's filter has few
// entries and sockets may join at any time.
class FrameQueue {
 public:
  static constexpr uint32_t kBurstMax = 64;  // the most frames in one burst

  virtual ~FrameQueue() = default;

  // Sends frames in their order. Returns how many the port took, from the front. The port owns
  // these, and frees them once they are sent. The others stay the caller's.
  virtual uint32_t send(std::span<rte_mbuf*> frames) noexcept = 0;
  // Whether send() would take a frame. True if the port cannot tell.
  virtual bool has_room() const noexcept = 0;
  // Returns an empty mbuf of the port's pool, with RTE_PKTMBUF_HEADROOM and then space for
  // mtu_bytes(), or nullptr if none is free. The caller owns it.
  virtual rte_mbuf* allocate() noexcept = 0;
  // Returns the direct mbuf whose buffer holds `bytes`, never an mbuf that is attached to it. Finds
  // the mbufs of all ports of this process. Returns nullptr if the bytes are elsewhere. Takes no
  // reference. Cost: arithmetic.
  virtual rte_mbuf* find(const std::byte* bytes) const noexcept = 0;

  // These values are constant after the start.
  virtual rte_ether_addr mac() const noexcept = 0;
  virtual uint32_t mtu_bytes() const noexcept = 0;  // the link's: the most bytes of an IP packet
  virtual FrameOffloads offloads() const noexcept = 0;
};

}  // namespace bedplate
