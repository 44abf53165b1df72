// A token bucket for packets: limits their rate, and how many may come at once. It begins full.
//
// Smaller and cheaper than TokenBucket (transport/loop/token_bucket.h), for one token a packet: it
// has no costs, no debts and no changes of its rate, and rounds the time of a token down.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

// Threads: its owner's.
class PacketLimit {
 public:
  // Requires: `per_second` is 1 to 1,000,000,000; `burst` is over 0.
  PacketLimit(uint32_t per_second, uint32_t burst) noexcept
      : token_ns_(1'000'000'000 / per_second), full_ns_(token_ns_ * burst), saved_ns_(full_ns_) {
    BP_ASSERT(token_ns_ > 0 && burst > 0);
  }

  // Whether one more packet is allowed. If so, takes its token. Times: of one monotonic clock.
  bool try_take(uint64_t now_ns) noexcept {
    BP_DCHECK(now_ns >= last_ns_);
    saved_ns_ = std::min(full_ns_, saved_ns_ + std::min(full_ns_, now_ns - last_ns_));
    last_ns_ = now_ns;
    if (saved_ns_ < token_ns_) return false;
    saved_ns_ -= token_ns_;
    BP_DCHECK(saved_ns_ < full_ns_);
    return true;
  }

 private:
  uint64_t token_ns_;
  uint64_t full_ns_;
  uint64_t saved_ns_;
  uint64_t last_ns_ = 0;
};

}  // namespace bedplate
