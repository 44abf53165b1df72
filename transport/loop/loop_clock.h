// The time of an event loop: that of its last look at the clock, which may be a clock of a test.
// All that the loop and its callbacks measure by now_ns() costs no clock call.
#pragma once

#include <cstdint>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

// Threads: the loop's. Times: of monotonic_ns(), or of the test's clock.
class LoopClock {
 public:
  // Looks at the clock for the first time. `test_clock_ns`: the time, set by a test, which outlives
  // this; nullptr: the machine's clock.
  void create(const uint64_t* test_clock_ns) noexcept {
    test_clock_ns_ = test_clock_ns;
    look();
  }

  // The time of the last look.
  uint64_t now_ns() const noexcept { return now_ns_; }
  // Reads the clock, and makes the result the time of the last look.
  uint64_t look() noexcept { return now_ns_ = read(); }
  // Reads the clock, and leaves now_ns() as it is.
  uint64_t read() const noexcept {
    return BP_LIKELY(test_clock_ns_ == nullptr) ? monotonic_ns() : *test_clock_ns_;
  }

 private:
  const uint64_t* test_clock_ns_ = nullptr;
  uint64_t now_ns_ = 0;
};

}  // namespace bedplate
