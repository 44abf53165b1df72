// Detects work that keeps an event loop for too long, and logs its name.
//
// A loop without stalls pays two comparisons at each look at the clock that it takes anyway, and at
// most one read of /proc in each quarter of the limit. If too much time lies between two looks, the
// watch knows only which sources had work in between. For kTimingNs after that the loop times each
// source by itself, so the watch can name the next stall's source.
//
// Two kinds of lost time are not stalls; each has its own counter and log message: time in which
// the thread wanted to run but the machine ran something else, which the kernel counts (schedstat),
// and time in which the whole process stood still, which another thread witnesses
// (platform/process_pulse.h).
#pragma once

#include <cstdint>

#include "platform/file.h"
#include "platform/log_limit.h"
#include "transport/loop/loop_counters.h"

namespace bedplate {

class ProcessPulse;
class ShardPlan;

struct StallWatchOptions {
  uint64_t limit_ns = 0;  // nothing may take longer; 0: the watch is off
  // All outlive the watch. `counters` is required.
  StallCounters* counters = nullptr;
  const ProcessPulse* pulse = nullptr;
  const ShardPlan* plan = nullptr;  // names the shard and its services
};

// Threads: the loop's, but for the constructor. Only LoopWork uses it.
class StallWatch {
 public:
  // After a stall each source is timed for this long.
  static constexpr uint64_t kTimingNs = 10 * kNsPerSecond;

  // From now on nothing may take longer than the limit. Times: monotonic_ns().
  void begin(const StallWatchOptions& options, uint64_t now_ns) noexcept;

  // Attributes the time since the last mark to `name`, and to the services among the heap owners
  // `askers` (shard_plan.h). Returns whether that was a stall. Counts and logs a stall or lost time
  // that exceeds the limit; the log has a limit of its own.
  bool mark(uint64_t now_ns, const char* name, uint32_t askers = 0) noexcept {
    const uint64_t took_ns = now_ns - marked_ns_;
    marked_ns_ = now_ns;
    if (took_ns > limit_ns_) [[unlikely]]
      return note({took_ns, name, askers}, now_ns);
    return false;
  }
  // The same for one of several: `had_work` has all names, separated by commas.
  bool mark_any(uint64_t now_ns, const char* had_work) noexcept {
    const uint64_t took_ns = now_ns - marked_ns_;
    marked_ns_ = now_ns;
    if (took_ns > limit_ns_) [[unlikely]]
      return note({took_ns, nullptr, 0, had_work}, now_ns);
    return false;
  }
  // Whether the time since the last mark is too long, so that the caller should list the sources
  // that had work.
  bool is_too_long(uint64_t now_ns) const noexcept { return now_ns - marked_ns_ > limit_ns_; }
  // Attributes the time since the last mark to nobody: the loop slept.
  void skip(uint64_t now_ns) noexcept { marked_ns_ = now_ns; }
  // Whether each source is to be timed.
  bool is_timing(uint64_t now_ns) const noexcept { return now_ns < timing_until_ns_; }
  // Reads the lost time anew if the last reading is older than a quarter of the limit. Called after
  // a mark. Cost: a comparison; now and then a read of a file in /proc.
  void look_at_lost(uint64_t now_ns) noexcept {
    if (now_ns - lost_at_ns_ > refresh_ns_) [[unlikely]]
      refresh_lost(now_ns);
  }

 private:
  // Time in which the loop could not run; counted from before begin().
  struct LostTime {
    uint64_t waited_ns = 0;  // for its core
    uint32_t still_ms = 0;   // ProcessPulse::still_ms
  };

  struct LongTime {
    uint64_t took_ns = 0;
    const char* name = nullptr;  // nullptr: one of those in had_work
    uint32_t askers = 0;
    const char* had_work = "";
  };

  bool note(const LongTime& time, uint64_t now_ns) noexcept;
  void tell_stall(const LongTime& time, uint64_t lost_ns) noexcept;
  void tell_lost(uint64_t waited_ns, uint64_t still_ns) noexcept;
  void refresh_lost(uint64_t now_ns) noexcept;
  LostTime read_lost(uint64_t now_ns) const noexcept;
  uint64_t read_waited_ns() const noexcept;

  uint64_t limit_ns_ = ~uint64_t{0};
  uint64_t refresh_ns_ = ~uint64_t{0};
  uint64_t marked_ns_ = 0;
  uint64_t timing_until_ns_ = 0;
  LostTime lost_;  // as of lost_at_ns_, not long before the last mark
  uint64_t lost_at_ns_ = 0;
  StallCounters* counters_ = nullptr;
  const ProcessPulse* pulse_ = nullptr;
  const ShardPlan* plan_ = nullptr;
  char loop_[48] = "an event loop";  // in the log: "shard main"
  Fd schedstat_;                     // not open: the kernel does not count waiting time
  LogLimit stall_limit_{5};
  LogLimit preemption_limit_{1};
  LogLimit standstill_limit_{1};
};

}  // namespace bedplate
