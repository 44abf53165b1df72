// State that the packet layers of one port's queues share, each on its shard: which shard has a
// socket of which UDP port, and for each shard a ring of frames that others hand over to it.
//
// A port spreads frames over its queues by a hash of their addresses (RSS), so a frame for one
// shard may arrive on another one. The rules:
// 1. Each shard has neighbours, paths, memberships and sockets of its own, and asks and reports for
//    itself. Several reports of one host add up (RFC 3376, 6.4; RFC 3810, 7.4).
// 2. The shard that receives a frame answers it: echo, ARP, neighbour solicitations.
// 3. The shard that receives a message of ARP, ICMP (except an echo request), neighbour discovery,
//    IGMP or MLD also hands it to all other shards. These learn from it, and answer only queries
//    for groups of their own.
// 4. A datagram to one station is delivered on the shard that receives it, if a socket there takes
//    it. Otherwise the shard hands it to the shards that may have a socket of its port. It always
//    hands over a datagram to a group or a broadcast.
// No frame is handed over twice. If a ring is full, the frame is dropped and counted.
//
// So bind a UDP port on one shard, or on all of them with shares_port; bind() does not check this.
// If a switch ends a group at a host's first leave (immediate leave), join the group on one shard
// only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rte_mbuf.h>

struct rte_ring;

namespace bedplate {

// Threads: any, but only the shard of a queue calls take() for it.
class PortShared {
 public:
  static constexpr uint32_t kQueueCountMax = 32;

  struct Options {
    uint32_t queue_count = 1;          // 1 to kQueueCountMax
    uint32_t ring_frame_count = 1024;  // a power of two; a ring holds one frame fewer
    // Wakes the shard of a queue (EventLoop::doorbell().ring()). The shard that hands a frame over
    // calls it, on its own thread. If it is nullptr, the shards poll.
    void (*wake)(void* context, uint32_t queue_index) noexcept = nullptr;
    void* context = nullptr;
  };

  // Before the seal: it allocates.
  explicit PortShared(const Options& options);
  ~PortShared();  // frees the frames that were not taken
  PortShared(const PortShared&) = delete;
  PortShared& operator=(const PortShared&) = delete;

  uint32_t queue_count() const noexcept { return options_.queue_count; }

  // Each shard announces the ports of its sockets (set_owner). Ports in one bucket (bucket_of)
  // share a bit.
  static constexpr uint32_t kBucketCount = 4096;
  static uint32_t bucket_of(uint16_t port) noexcept { return port % kBucketCount; }
  void set_owner(uint32_t bucket, uint32_t queue_index, bool is_owner) noexcept;
  // A bit for each queue whose shard may have a socket of `port`.
  uint32_t owners(uint16_t port) const noexcept {
    return owners_[bucket_of(port)].load(std::memory_order_acquire);
  }

  struct Handed {
    rte_mbuf* frame = nullptr;
    uint64_t is_own = 0;  // 1: this port sent it to itself
  };
  // Hands a frame over. Returns false if the ring is full; the frame stays the caller's.
  bool hand_over(uint32_t queue_index, const Handed& handed) noexcept;
  // Takes the frames that were handed over, as many as fit. Returns how many; the caller owns them.
  uint32_t take(uint32_t queue_index, std::span<Handed> handed) noexcept;
  bool has_frames(uint32_t queue_index) const noexcept;

 private:
  Options options_;
  std::unique_ptr<std::atomic<uint32_t>[]> owners_;
  std::unique_ptr<std::byte[]> ring_memory_;
  rte_ring* rings_[kQueueCountMax] = {};
};

}  // namespace bedplate
