// Notes which parts of an event loop had work since it last looked at its clock: the calls of other
// threads, the timers, each source. If work keeps the loop for too long, their names go to the log
// (stall_watch.h), and their counters count the stall.
//
// Usually the loop looks at the clock after the work of all parts, so a stall counts for each part
// that had some. For a while after a stall the loop looks after each part: is_timing() says so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/loop/loop_counters.h"
#include "transport/loop/loop_sources.h"
#include "transport/loop/shard_plan.h"
#include "transport/loop/stall_watch.h"

namespace bedplate {

// Threads: the loop's. Times: of its clock.
class LoopWork {
 public:
  // `sources`, `counters`, and all that `options` points to, outlive this.
  LoopWork(const LoopSources& sources, EventLoopCounters& counters,
           const StallWatchOptions& options) noexcept
      : sources_(sources), counters_(counters), options_(options) {}

  // The loop runs from now on, on the calling thread: from here on there may be stalls.
  void begin(uint64_t now_ns) noexcept { stall_watch_.begin(options_, now_ns); }

  // Notes what each part did; 0: nothing. `askers`: the heap owners that had asked for it.
  void note_calls(uint32_t count, OwnerSet askers) noexcept {
    note(kCallsBit, count);
    call_askers_ |= askers;
  }
  void note_timers(uint32_t count, OwnerSet askers) noexcept {
    note(kTimersBit, count);
    timer_askers_ |= askers;
  }
  void note_source(uint32_t index, uint32_t count) noexcept { note(bit_of(index), count); }
  // Whether any part had work.
  bool has_any() const noexcept { return had_work_ != 0; }

  // Whether the loop is to look at the clock after each part, and to call mark_...() then.
  bool is_timing(uint64_t now_ns) const noexcept { return stall_watch_.is_timing(now_ns); }
  // This part alone took the time since the last look at the clock.
  void mark_calls(uint64_t now_ns, OwnerSet askers) noexcept;
  void mark_timers(uint64_t now_ns, OwnerSet askers) noexcept;
  void mark_source(uint64_t now_ns, uint32_t index) noexcept;
  // All parts with work took that time. From here on none has had work.
  void mark_all(uint64_t now_ns) noexcept {
    if (stall_watch_.is_too_long(now_ns)) [[unlikely]]
      note_stall(now_ns);
    stall_watch_.skip(now_ns);
    stall_watch_.look_at_lost(now_ns);
    had_work_ = 0;
    timer_askers_ = call_askers_ = 0;
  }
  // No part took that time: the loop slept.
  void skip(uint64_t now_ns) noexcept { stall_watch_.skip(now_ns); }

 private:
  // Bits of had_work_. Source i has bit kSourcesBit + i; all sources past kLastBit share that bit.
  static constexpr uint32_t kCallsBit = 0;
  static constexpr uint32_t kTimersBit = 1;
  static constexpr uint32_t kSourcesBit = 2;
  static constexpr uint32_t kLastBit = 63;

  static uint32_t bit_of(uint32_t source) noexcept {
    return std::min(kSourcesBit + source, kLastBit);
  }
  void note(uint32_t bit, uint32_t count) noexcept { had_work_ |= uint64_t{count > 0} << bit; }
  bool has(uint32_t bit) const noexcept { return (had_work_ >> bit & 1) != 0; }
  void note_stall(uint64_t now_ns) noexcept;
  const char* list(char* text, size_t text_bytes) const noexcept;
  void count_stall_of(const LoopSource& source) noexcept;

  const LoopSources& sources_;
  EventLoopCounters& counters_;
  const StallWatchOptions options_;
  StallWatch stall_watch_;
  uint64_t had_work_ = 0;
  OwnerSet timer_askers_ = 0;  // heap owners of the timers, and of the calls, of that work
  OwnerSet call_askers_ = 0;
};

}  // namespace bedplate
