// State that the packet layers of one port's queues share, each on its shard: which shard has a
// socket of which UDP port, and for each shard a ring of frames that others hand over to it.
//
// A port spreads frames over its queues by a hash of their addresses (RSS), so a frame for one
// shard may arrive on another one. The rules:
// 1. Each shard has neighbours, paths, memberships and sockets of its own, and asks and reports for
//    itself. Several reports of one host add up (RFC 3376, 6.4; RFC 3810, 7.4).
// 2. The shard that receives a frame answers it: echo, ARP, neighbour solicitations.
// 3. ARP, ICMP, neighbour discovery and queries are also handed to all other shards. These learn
//    from them, and answer only queries for groups of their own.
// 4. A datagram is delivered on the shard that receives it, if a socket there takes it. Otherwise,
//    and always if it is multicast, it is handed to the shards that have a socket of its port.
// No frame is handed over twice. A full ring drops the frame, which is counted.
//
// So one UDP port is bound on one shard, or on all of them with shares_port. If a switch ends a
// group at a host's first leave (immediate leave), join the group on one shard only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rte_mbuf.h>

struct rte_ring;

namespace bedplate {

// Threads: any; take(): the queue's shard.
class PortShared {
 public:
  static constexpr uint32_t kQueueCountMax = 32;

  struct Options {
    uint32_t queue_count = 1;          // 1 to kQueueCountMax
    uint32_t ring_frame_count = 1024;  // a power of two
    // Wakes the shard of a queue (EventLoop::doorbell().ring()). The shard that hands a frame over
    // calls it. nullptr: the shards poll.
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
  // Takes the frames that were handed over. Returns how many.
  uint32_t take(uint32_t queue_index, std::span<Handed> handed) noexcept;
  bool has_frames(uint32_t queue_index) const noexcept;

 private:
  Options options_;
  std::unique_ptr<std::atomic<uint32_t>[]> owners_;
  std::unique_ptr<std::byte[]> ring_memory_;
  rte_ring* rings_[kQueueCountMax] = {};
};

}  // namespace bedplate
