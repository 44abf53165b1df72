// The idle step of a side of `bedplate perf`: it polls again, yields, or sleeps.
#pragma once

#include <sched.h>

#include "platform/clock.h"
#include "platform/cpu.h"
#include "transport/messages/messenger.h"

namespace bedplate {

enum class PerfMode : uint32_t { kPolling, kEvents };

class PerfPace {
 public:
  // Whether this side yields between polls. With one processor for both sides, the polling side
  // must yield to the other side, also after work: only the other side produces more.
  bool yields(PerfMode mode) const noexcept { return yields_ && mode == PerfMode::kPolling; }

  void idle(Messenger& messenger, PerfMode mode) noexcept {
    if (mode == PerfMode::kEvents) {
      messenger.wait(kSleepNs);
    } else if (yields(mode)) {
      sched_yield();
    } else {
      cpu_relax();
    }
  }

  // Whether the side has been idle for `bound_ns`. Called after each poll that found no work. While
  // polling, it reads the clock and yields only every kLookEvery calls, to poll again soon.
  bool is_overdue(PerfMode mode, uint64_t bound_ns) noexcept {
    if (mode == PerfMode::kPolling) {
      if (++idle_count_ % kLookEvery != 0) return false;
      sched_yield();  // the other side may need this processor
    }
    const uint64_t now = monotonic_ns();
    if (idle_since_ns_ == 0) idle_since_ns_ = now;
    return now - idle_since_ns_ > bound_ns;
  }
  void work_done() noexcept {
    idle_count_ = 0;
    idle_since_ns_ = 0;
  }

 private:
  static constexpr uint64_t kSleepNs = kNsPerMs;  // short: space in a queue wakes nobody
  static constexpr uint32_t kLookEvery = 1024;

  const bool yields_ = usable_cpu_count() == 1;
  uint32_t idle_count_ = 0;
  uint64_t idle_since_ns_ = 0;
};

}  // namespace bedplate
