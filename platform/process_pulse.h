// Measures how long the whole process has stood still: after a stop signal, in a debugger, in a
// frozen or throttled control group, in a paused virtual machine.
//
//     the beating thread:  beat, wait for a moment, beat, wait, ..., rest; other work; beat, ...
//     other threads:       standstill = still_ms() now - still_ms() then
//
// A thread that only waits wakes up late for one of two reasons: the kernel did not run this
// thread, or it ran no thread of the process. So its delay counts as time in which other threads
// could not run either. While the thread works its delay proves nothing, so it rests.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/units.h"

namespace bedplate {

class ProcessPulse {
 public:
  // Requires: `period_ns` is over 0, and beats are normally no further apart. Call it before the
  // first beat.
  void set_period(uint64_t period_ns) noexcept {
    period_ms_ = (period_ns + kNsPerMs - 1) / kNsPerMs;
  }

  // Threads: one thread, which only waits until its next beat or rest. `now_ns`: monotonic_ns().
  void beat(uint64_t now_ns) noexcept;
  // Stops measuring until the next beat.
  void rest(uint64_t now_ns) noexcept;

  // The milliseconds that the process has stood still since the first beat, modulo 2^32. Each
  // standstill counts as up to one period less than it was; one of more than 12 days may count as
  // none. Threads: any. Cost: a load.
  uint32_t still_ms(uint64_t now_ns) const noexcept;

 private:
  // All state that readers see, in one word that changes at once: the time of the last beat in
  // milliseconds modulo 2^31, a bit that is set while the thread rests, and the milliseconds of
  // standstill until the last beat, modulo 2^32.
  static constexpr uint64_t kResting = uint64_t{1} << 63;
  static constexpr uint64_t kTimeMask = (uint64_t{1} << 31) - 1;

  uint64_t late_ms(uint64_t state, uint64_t now_ns) const noexcept;
  void publish(uint64_t now_ns, uint64_t resting) noexcept;

  uint64_t period_ms_ = 1;
  std::atomic<uint64_t> state_{kResting};
};

}  // namespace bedplate
