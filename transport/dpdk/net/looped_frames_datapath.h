// Frames that a port sent to itself: to its own addresses, or to groups that its sockets hear. The
// packet layer receives them in its next round.
//
// If there is no room, the new frame is dropped, which is counted.
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

  // `counters` outlive it.
  explicit LoopedFrames(NetCounters& counters) noexcept : counters_(counters) {}
  // Frees the frames that it has.
  ~LoopedFrames();
  LoopedFrames(const LoopedFrames&) = delete;
  LoopedFrames& operator=(const LoopedFrames&) = delete;

  uint32_t count() const noexcept { return count_; }

  // Owns `frame` from here on. It may be on its way out as well, by one more reference.
  void push(rte_mbuf* frame) noexcept;
  // Moves the oldest frames to `frames`: they are the caller's then. Returns how many.
  uint32_t take(std::span<rte_mbuf*> frames) noexcept;

 private:
  NetCounters& counters_;
  rte_mbuf* frames_[kCountMax];  // the oldest first
  uint32_t count_ = 0;
};

}  // namespace bedplate
