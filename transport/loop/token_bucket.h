// A budget that time refills: tokens at a rate per second, up to a burst.
//
//     may take `cost` now:   the bucket has that many tokens, or it is full
//     take(cost):            leaves less, or a debt
//
// A taker that wants more than the burst waits for a full bucket, and leaves a debt, which time
// pays back. So nobody waits for ever. In any time t, takers of at most the burst get at most
// burst + rate * (t + kLateNs).
//
// The level is kept in billionths of a token: each nanosecond adds exactly `per_second` of them. So
// nothing is rounded, and no rate drifts, 1 token a second as little as 2^40. All products fit 128
// bits. A clock that goes back adds nothing; one that jumps ahead fills the bucket at most.
//
// Invariants, which is_valid() checks: 1. The level is at most the burst and the tokens of kLateNs.
// 2. A bucket with a rate has a burst of at least one token. Threads: one at a time. It reads no
// clock: its callers pass the time, of any clock in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {

class TokenBucket {
 public:
  static constexpr uint64_t kRateMax = uint64_t{1} << 40;
  static constexpr uint64_t kBurstNsMax = 3600 * kNsPerSecond;
  static constexpr uint64_t kCostMax = UINT32_MAX;
  // A full bucket goes on filling for this long: a taker that waited for it may come late, and that
  // must not lower the rate.
  static constexpr uint64_t kLateNs = kNsPerMs;

  // A bucket without a rate has any number of tokens.
  TokenBucket() noexcept = default;

  bool is_limited() const noexcept { return per_second_ != 0; }

  // Sets the rate; 0: none. The burst is what comes in `burst_ns`, and at least one token. The
  // bucket keeps its tokens, up to the burst, or its debt; a bucket that had no rate begins full.
  // Requires: at most kRateMax and kBurstNsMax.
  void set(uint64_t now_ns, uint64_t per_second, uint64_t burst_ns) noexcept {
    BP_ASSERT(per_second <= kRateMax && burst_ns <= kBurstNsMax);
    const bool was_limited = is_limited();
    if (was_limited) refill(now_ns);
    per_second_ = per_second;
    full_ = std::max(Level{per_second} * burst_ns, Level{kNsPerSecond});
    level_ = was_limited ? std::min(level_, full_) : full_;
    at_ns_ = now_ns;
    BP_DCHECK(is_valid());
  }

  // Whether `cost` tokens, at most kCostMax, may be taken now. Cost: a multiplication.
  bool has(uint64_t now_ns, uint64_t cost) noexcept {
    BP_DCHECK(cost <= kCostMax);
    if (!is_limited()) return true;
    refill(now_ns);
    return level_ >= wanted(cost);
  }
  // Requires: has() has said so, for this cost; or the taker had no choice.
  void take(uint64_t cost) noexcept {
    if (is_limited()) level_ -= Level{cost} * kNsPerSecond;
  }
  // When has() will be true, if nobody takes meanwhile; a time in the past: it is now. UINT64_MAX:
  // after the end of the clock. Cost: a division.
  uint64_t ready_ns(uint64_t cost) const noexcept {
    if (!is_limited() || level_ >= wanted(cost)) return at_ns_;
    const Level missing = wanted(cost) - level_;
    const Level ns = (missing + per_second_ - 1) / per_second_;
    return ns > UINT64_MAX - at_ns_ ? UINT64_MAX : at_ns_ + static_cast<uint64_t>(ns);
  }

  bool is_valid() const noexcept {
    return !is_limited() || (level_ <= most() && full_ >= Level{kNsPerSecond});
  }

 private:
  // Billionths of a token. A debt is less than 2^32 tokens for each taker since the last full
  // bucket, so no level leaves 128 bits.
  using Level = __int128;

  void refill(uint64_t now_ns) noexcept {
    if (now_ns > at_ns_) {
      level_ = std::min(most(), level_ + Level{now_ns - at_ns_} * per_second_);
    }
    at_ns_ = now_ns;
  }
  Level most() const noexcept { return full_ + Level{per_second_} * kLateNs; }
  Level wanted(uint64_t cost) const noexcept { return std::min(full_, Level{cost} * kNsPerSecond); }

  Level level_ = 0;
  Level full_ = 0;
  uint64_t per_second_ = 0;
  uint64_t at_ns_ = 0;  // the time of level_
};

}  // namespace bedplate
