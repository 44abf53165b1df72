// How an event loop spends its thread's time: counts busy and spin time; all other time is sleep
// (EventLoopCounters).
//
// The loop counts time at each look at the clock that it takes anyway. The kernel also works for
// the thread while the thread waits, so the thread's processor time beyond the counted time is
// added to the busy time: before sleeps, at most once in kCpuLookNs, and when run() ends.
#pragma once

#include <cstdint>
#include <utility>

#include "platform/units.h"
#include "transport/loop/loop_counters.h"

namespace bedplate {

// Threads: the loop's. Times: of its clock.
class AwakeTime {
 public:
  // How often the loop asks for the thread's processor time, a system call, at most.
  static constexpr uint64_t kCpuLookNs = 10 * kNsPerMs;

  // Counts from `now_ns` on. `counters` outlive this.
  AwakeTime(EventLoopCounters& counters, uint64_t now_ns) noexcept
      : counters_(counters), counted_ns_(now_ns) {}

  // The loop runs from now on, on the calling thread. Earlier time is not counted.
  void begin(uint64_t now_ns) noexcept;

  // The time since the last call of count() or skip() was busy, or the loop spun.
  void count(uint64_t now_ns, bool is_busy) noexcept {
    const uint64_t passed_ns = now_ns - std::exchange(counted_ns_, now_ns);
    (is_busy ? counters_.busy_ns : counters_.spin_ns).add(passed_ns);
  }
  // The loop slept in that time.
  void skip(uint64_t now_ns) noexcept { counted_ns_ = now_ns; }

  // The loop is about to sleep: asks for the processor time, unless it has just done so.
  void look_before_sleep(uint64_t now_ns) noexcept {
    if (now_ns - cpu_looked_ns_ >= kCpuLookNs) look_at_cpu(now_ns);
  }
  // Adds the processor time beyond the counted time to the busy time. It may add too little: time
  // in which the thread waited for its core is counted as well, and hides some. Cost: a system
  // call.
  void look_at_cpu(uint64_t now_ns) noexcept;

 private:
  uint64_t awake_ns() const noexcept;

  EventLoopCounters& counters_;
  uint64_t counted_ns_;          // time is counted up to here
  uint64_t cpu_looked_ns_ = 0;   // the time of the last question for the processor time
  uint64_t cpu_ns_ = 0;          // the processor time then
  uint64_t cpu_counted_ns_ = 0;  // the busy and spin time counted by then
};

}  // namespace bedplate
