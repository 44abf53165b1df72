// Hands frames over to the other shards of a port, and takes frames from them, for the packet layer
// of one shard. PortShared has the rules and the rings.
//
// It does not look into frames.
#pragma once

#include <cstdint>
#include <span>

#include <rte_mbuf.h>

#include "platform/assert.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/net/packet_limit_datapath.h"
#include "transport/dpdk/net/port_shared_datapath.h"

namespace bedplate {

// Threads: the shard's.
class OtherShards {
 public:
  // `shared` and `counters` outlive it. If `shared` is nullptr, there are no other shards.
  // `queue_index` is that of this shard.
  OtherShards(PortShared* shared, uint32_t queue_index, NetCounters& counters) noexcept
      : shared_(shared), queue_index_(queue_index), counters_(counters) {}

  bool are_there() const noexcept { return shared_ != nullptr; }

  // Whether any shard, this one included, may have a socket of `udp_port`. False if are_there() is
  // false, even if this shard has such a socket.
  bool is_owned(uint16_t udp_port) const noexcept {
    return shared_ != nullptr && shared_->owners(udp_port) != 0;
  }
  // Whether another shard may have a socket of `udp_port`.
  bool have_socket(uint16_t udp_port) const noexcept {
    return shared_ != nullptr && others_with(udp_port) != 0;
  }
  // Tells the others whether this shard has sockets of a bucket of ports (PortShared::bucket_of).
  // Requires: are_there().
  void set_owner(uint32_t bucket, bool is_owner) noexcept {
    shared_->set_owner(bucket, queue_index_, is_owner);
  }

  // Hands the frame, by another reference, to each other shard that may have a socket of
  // `udp_port`. Returns whether there is such a shard, even if its ring was full. `is_own` means
  // that this port sent the frame to itself.
  bool hand_to_owners(rte_mbuf* frame, uint16_t udp_port, bool is_own) noexcept {
    const uint32_t others = shared_ != nullptr ? others_with(udp_port) : 0;
    if (others != 0) hand_over(frame, others, is_own);
    return others != 0;
  }
  // Hands a control frame, by another reference, to all other shards, because all learn from it.
  // Frames beyond kControlPerSecond are not handed over, but counted (kRateLimited).
  void hand_to_all(rte_mbuf* frame, uint64_t now_ns) noexcept;

  // Whether other shards have handed frames over. take() takes as many as fit, and returns how
  // many; the caller owns them. take() requires are_there().
  bool have_handed() const noexcept {
    return shared_ != nullptr && shared_->has_frames(queue_index_);
  }
  uint32_t take(std::span<PortShared::Handed> handed) noexcept {
    BP_DCHECK(shared_ != nullptr);
    return shared_->take(queue_index_, handed);
  }

 private:
  static constexpr uint32_t kControlPerSecond = 4000;  // frames that go to all shards
  static constexpr uint32_t kControlBurst = 256;

  // A bit for the queue of each other shard that may have a socket of `udp_port`.
  uint32_t others_with(uint16_t udp_port) const noexcept {
    return shared_->owners(udp_port) & ~(1U << queue_index_);
  }
  void hand_over(rte_mbuf* frame, uint32_t queues, bool is_own) noexcept;

  PortShared* shared_;
  uint32_t queue_index_;
  NetCounters& counters_;
  PacketLimit control_{kControlPerSecond, kControlBurst};
};

}  // namespace bedplate
