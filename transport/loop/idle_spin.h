// How long an idle event loop spins, that is, polls on before it sleeps.
//
// A spin pays if work comes soon. If no work comes, because nobody asks or because the thread that
// would ask waits for this very core, a spin only keeps the core from others. So each spin in vain
// doubles the number of idle periods without a spin, up to a limit; the first spin that finds work
// resets it.
//
// Invariants, which is_valid() looks at: 1. At most kFailuresMax spins in a row count as failed.
// 2. Idle periods without a spin are fewer than 2^kFailuresMax.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bedplate {

// Threads: the loop's. Times: of its clock.
class IdleSpin {
 public:
  // After this many failed spins the loop still spins in one idle period of 2^8.
  static constexpr uint32_t kFailuresMax = 8;

  explicit IdleSpin(uint64_t spin_ns) noexcept : spin_ns_(spin_ns) {}

  // The loop has work: an idle period, if there was one, is over.
  void find_work() noexcept {
    if (until_ns_ != 0) failure_count_ = 0;
    until_ns_ = 0;
  }
  // The loop is idle. Returns whether it spins on; false: it is to sleep, and the idle period ends.
  bool goes_on(uint64_t now_ns) noexcept {
    if (until_ns_ == 0) {
      if (skip_count_ > 0) {
        --skip_count_;
        return false;
      }
      until_ns_ = now_ns + spin_ns_;
    }
    if (now_ns < until_ns_) return true;
    skip_count_ = (1U << failure_count_) - 1;
    failure_count_ = std::min(failure_count_ + 1, kFailuresMax);
    until_ns_ = 0;
    return false;
  }

  // Whether the invariants hold.
  bool is_valid() const noexcept {
    return failure_count_ <= kFailuresMax && skip_count_ < 1U << kFailuresMax;
  }

 private:
  const uint64_t spin_ns_;
  uint64_t until_ns_ = 0;       // 0: the loop does not spin
  uint32_t failure_count_ = 0;  // spins in vain, in a row
  uint32_t skip_count_ = 0;     // idle periods without a spin, until the next one with a spin
};

}  // namespace bedplate
