// Limits on one source's lines in the log. All messages that a peer can cause have a limit for each
// source, so that a flood from one source hides nothing about the others.
//
// LogLimit lets some lines pass in each period, counts further ones, and logs the count when the
// period is over. OncePerSecond is for code that any thread runs and that has no later call to log
// a count, such as malloc. It logs no count of the suppressed lines, so its user keeps a counter.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {

// Threads: one at a time. `source` names the source in the log.
//
// Invariants, which is_valid() looks at, before and after each change: 1. At most count_max lines
// passed in a period. 2. Lines are held back only when count_max lines have passed. 3. A period
// that has begun has an end.
class LogLimit {
 public:
  static constexpr uint64_t kPeriodNs = 10 * kNsPerSecond;

  // Requires: count_max > 0; with 0 no period would begin.
  constexpr explicit LogLimit(uint32_t count_max, uint64_t period_ns = kPeriodNs) noexcept
      : count_max_(count_max), period_ns_(period_ns) {
    BP_ASSERT(count_max > 0);
  }

  // Whether one more message about `source` may be logged. Counts this message, as passed or as
  // held back. If the period is over, first logs the count of the messages held back.
  bool try_pass(const char* source) noexcept;
  // If the period is over, logs the count of the messages held back. Call it at due_ns(), on the
  // clock of monotonic_ns(): the count is then logged even if no further message comes.
  void lift(const char* source) noexcept;
  // When to call lift(). UINT64_MAX: nothing is held back.
  uint64_t due_ns() const noexcept { return held_back_ > 0 ? period_end_ns_ : UINT64_MAX; }

  bool is_valid() const noexcept {
    return passed_ <= count_max_ && (held_back_ == 0 || passed_ == count_max_) &&
           (passed_ == 0 || period_end_ns_ != 0);
  }

 private:
  uint32_t count_max_;
  uint32_t passed_ = 0;  // in this period; 0: it has not begun
  uint64_t held_back_ = 0;
  uint64_t period_ns_;
  uint64_t period_end_ns_ = 0;
};

// Lets one message a second pass. Constant-initialised. Threads: any.
class OncePerSecond {
 public:
  // Whether this message may be logged.
  bool try_pass() noexcept;

 private:
  std::atomic<uint64_t> quiet_until_ns_{0};
};

}  // namespace bedplate
