// The rounds of an event loop (event_loop.h): sources, timers and calls get their turns; without
// work the loop spins, then sleeps.
//
//     run(), round after round until must_stop:
//       poll_once():
//         run_calls()          calls that other threads have submitted
//         each source:         poll(budget), in the name of the heap owner that added it
//         (1 busy round in 16: poll_timed(), which takes the time of each source with work)
//       with work:             the next round; 16 in a row look at no clock
//       check_time():          look at the clock; count busy or spin time; log a stall
//       expire_timers():       those that are due, of services and of the runtime; if there were
//                              some, the next round
//       idle:                  spin, while idle_spin.h says so
//       sleep():
//         announce_sleep()     the doorbell and each source; from now on producers ring
//         poll_once()          again: what came before the announcement did not ring
//         nothing:             return_pages_before() a long sleep; sleep_until() of the sleeper:
//                              the doorbell, a socket, sleep_deadline_ns() end it
//         announce_awake()
//
// One thread runs them. While there is work they make no system call of their own, but for a read
// of /proc now and then (stall_watch.h; not with stall_ns 0). When nothing has happened for the
// spin time (or at once, where spinning has not paid lately) the loop announces on its doorbell
// that it sleeps, looks at every source once more, and blocks in its sleeper until a socket, the
// doorbell, a timer or a source's sleep_max_ns() wakes it. After some work, before the first sleep
// that may last kLongSleepNs, it gives the empty pages of its thread's heaps back to the pool's
// heap.
//
// Invariants, which is_valid() looks at, before and after each sleep: 1. Each source is there and
// has a budget, and there are at most source_count_max. 2. The next sample is at most
// kRoundsPerMeasure rounds away. 3. The spin and the timers are valid (idle_spin.h, timer_queue.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "alloc/heap_owner.h"
#include "transport/loop/awake_time.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/idle_spin.h"
#include "transport/loop/shard_plan.h"
#include "transport/loop/stall_watch.h"

namespace bedplate {

// The parts of an EventLoop that its rounds use. They outlive the rounds.
struct LoopParts {
  const ThreadOwner& owner;
  Doorbell& doorbell;
  LoopCallQueue& calls;
  TimerQueue& timers;
  TimerQueue& own_timers;
  LoopClock& clock;
  const std::atomic<bool>& must_stop;
};

// Only EventLoop uses it; its functions say more. Threads: the loop's. It allocates when it is
// made, and never again.
class LoopRounds {
 public:
  // Before the seal. Requires: the clock has been looked at. Ownership: all that `options` points
  // to outlives this.
  LoopRounds(const EventLoopOptions& options, const LoopParts& loop);
  LoopRounds(const LoopRounds&) = delete;
  LoopRounds& operator=(const LoopRounds&) = delete;

  void add_source(PollSource& source, uint32_t budget, const char* name,
                  SourceCounters* counters) noexcept;
  void set_sleeper(Sleeper& sleeper) noexcept;
  bool has_sleeper() const noexcept { return sleeper_ != nullptr; }

  // Requires: a sleeper; the calling thread holds the loop, as for run_one().
  void run() noexcept;
  // EventLoop::run_round.
  uint32_t run_one() noexcept;

  // Whether the invariants hold.
  bool is_valid() const noexcept;

 private:
  struct SourceSlot {
    PollSource* source = nullptr;
    uint32_t budget = 0;
    const char* name = nullptr;
    SourceCounters* counters = nullptr;
    HeapOwner asker = {};  // the heap owner at the time the source was added
  };
  // Bits of had_work_. Source i has bit kSourcesBit + i; all sources past kLastBit share that bit.
  static constexpr uint32_t kCallsBit = 0;
  static constexpr uint32_t kTimersBit = 1;
  static constexpr uint32_t kSourcesBit = 2;
  static constexpr uint32_t kLastBit = 63;
  // How often a busy loop looks at the clock for its timers.
  static constexpr uint32_t kIterationsPerClock = 16;
  // Before a sleep that may last this long the loop gives empty pages back.
  static constexpr uint64_t kLongSleepNs = 10 * kNsPerMs;

  uint32_t poll_once() noexcept;
  uint32_t poll_timed(bool is_sample) noexcept;
  uint32_t run_calls() noexcept;
  void check_time() noexcept;
  void count_stall(uint32_t bit) noexcept;
  uint32_t expire_timers() noexcept;
  void note_work(uint32_t bit, uint32_t count) noexcept { had_work_ |= uint64_t{count > 0} << bit; }
  const char* those_with_work(char* text, size_t text_bytes) const noexcept;
  void announce_sleep() noexcept;
  void announce_awake() noexcept;
  void sleep() noexcept;
  void return_pages_before(uint64_t deadline_ns) noexcept;
  uint64_t sleep_deadline_ns() const noexcept;

  EventLoopCounters own_counters_;  // used if the options have none
  const EventLoopOptions options_;
  const LoopParts loop_;
  EventLoopCounters& counters_;
  AwakeTime awake_time_;
  IdleSpin idle_spin_;
  Sleeper* sleeper_ = nullptr;
  std::unique_ptr<SourceSlot[]> sources_;
  uint32_t source_count_ = 0;
  bool has_fresh_time_ = false;     // nothing ran since the last look at the clock
  uint32_t rounds_to_measure_ = 0;  // rounds with work until the next measured one
  StallWatch stall_watch_;
  bool may_have_pages_ = false;  // empty pages to return: the loop has worked since the last return
  uint64_t had_work_ = 0;        // since the last look at the clock
  OwnerSet timer_askers_ = 0;    // heap owners of the timers, and of the calls, of that work
  OwnerSet call_askers_ = 0;
};

}  // namespace bedplate
