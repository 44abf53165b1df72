// Queues frames that a port sends to itself: to its own addresses, or to groups that its sockets
// may have joined. The packet layer receives them in its next rounds, a burst in each.
//
// If the queue is full, it drops the new frame and counts kQueueFull.
#pragma once

#include <cstdint>
#include <span>

#include <rte_mbuf.h>

#include "transport/dpdk/net/net_counters.h"

namespace bedplate {

// Threads: the shard's.
class LoopedFrames {
 public:
  static constexpr uint32_t kCountMax = 256;

  // `counters` outlives it.
  explicit LoopedFrames(NetCounters& counters) noexcept : counters_(counters) {}
  // Frees the queued frames.
  ~LoopedFrames();
  LoopedFrames(const LoopedFrames&) = delete;
  LoopedFrames& operator=(const LoopedFrames&) = delete;

  uint32_t count() const noexcept { return count_; }

  // Takes ownership of `frame`. The port may be sending it too, by another reference.
  void push(rte_mbuf* frame) noexcept;
  // Moves the oldest frames to `frames`; the caller owns them then. Returns how many.
  uint32_t take(std::span<rte_mbuf*> frames) noexcept;

 private:
  NetCounters& counters_;
  rte_mbuf* frames_[kCountMax];  // the oldest first
  uint32_t count_ = 0;
};

}  // namespace bedplate
