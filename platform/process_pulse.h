// Measures how long a process as a whole has stood still: a stop signal, a debugger, a frozen or
// throttled control group, a virtual machine that was paused.
//
//     the thread that beats:  beat, wait for a moment, beat, wait, ..., rest; other work; beat, ...
//     the others:             still_ms() now, less still_ms() then: so long it stood still
//
// A thread that only waits wakes up late for one of two reasons: it was not let run, or nothing of
// the process was. So the time by which it is late is that in which others could not run either.
// While it works it is no witness: it rests.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/units.h"

namespace bedplate {

class ProcessPulse {
 public:
  // Requires: over 0; beats are no further apart than that, as far as the thread can help it.
  // Before the first beat.
  void set_period(uint64_t period_ns) noexcept {
    period_ms_ = (period_ns + kNsPerMs - 1) / kNsPerMs;
  }

  // Threads: one, which only waits until its next beat or rest. `now_ns`: monotonic_ns().
  void beat(uint64_t now_ns) noexcept;
  // Stops measuring until the next beat.
  void rest(uint64_t now_ns) noexcept;

  // The milliseconds that the process has stood still since the first beat, modulo 2^32. Each time
  // counts as up to a period less than it was. Threads: any. Cost: a load.
  uint32_t still_ms(uint64_t now_ns) const noexcept;

 private:
  // All that readers see, in one word that changes at once: the time of the last beat in
  // milliseconds modulo 2^31, a bit that says if it rests since, and the milliseconds that the
  // process stood still until then, modulo 2^32.
  static constexpr uint64_t kResting = uint64_t{1} << 63;
  static constexpr uint64_t kTimeMask = (uint64_t{1} << 31) - 1;

  uint64_t late_ms(uint64_t state, uint64_t now_ns) const noexcept;
  void publish(uint64_t now_ns, uint64_t resting) noexcept;

  uint64_t period_ms_ = 1;
  std::atomic<uint64_t> state_{kResting};
};

}  // namespace bedplate
