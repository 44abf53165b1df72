// The rounds of an event loop (event_loop.h): sources, timers and calls get their turns; without
// work the loop spins, then sleeps.
//
//     run(), round after round until must_stop:
//       poll_once():
//         run_calls()          calls that other threads have submitted
//         each source:         poll(budget), in the name of the heap owner that added it
//         (1 busy round in 16: poll_timed(), which takes the time of each source with work)
//       with work:             the next round; 16 in a row look at no clock
//       check_time():          look at the clock; AwakeTime counts busy or spin time, LoopWork logs
//                              a stall
//       expire_timers():       those that are due, of services and of the runtime; if there were
//                              some, the next round
//       idle:                  spin, while IdleSpin says so
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
// The rounds have four parts: LoopSources has the sources, LoopWork knows which had work, AwakeTime
// counts time, IdleSpin decides to spin. None knows a loop.
//
// Invariants, which is_valid() looks at, before and after each sleep: 1. The next sample is at most
// kRoundsPerMeasure rounds away. 2. The sources, the spin and the timers are valid (loop_sources.h,
// idle_spin.h, timer_queue.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/cache_line.h"
#include "platform/thread_owner.h"
#include "platform/units.h"
#include "transport/loop/awake_time.h"
#include "transport/loop/doorbell.h"
#include "transport/loop/idle_spin.h"
#include "transport/loop/loop_call_datapath.h"
#include "transport/loop/loop_clock.h"
#include "transport/loop/loop_counters.h"
#include "transport/loop/loop_sources.h"
#include "transport/loop/loop_work.h"
#include "transport/loop/poll_source.h"
#include "transport/loop/shard_plan.h"
#include "transport/loop/timer_queue.h"

namespace bedplate {

struct EventLoopOptions;

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

// Only EventLoop uses it, whose functions say more. Threads: the loop's. It allocates when it is
// made, and never again. Aligned: its thread writes it all the time, and no other thread's data may
// lie in the same cache line.
class alignas(kCacheLineBytes) LoopRounds {
 public:
  // Before the seal. Requires: the clock has been looked at. Ownership: all that `options` points
  // to outlives this.
  LoopRounds(const EventLoopOptions& options, const LoopParts& loop);
  LoopRounds(const LoopRounds&) = delete;
  LoopRounds& operator=(const LoopRounds&) = delete;

  LoopSources& sources() noexcept { return sources_; }
  void set_sleeper(Sleeper& sleeper) noexcept;
  bool has_sleeper() const noexcept { return sleeper_ != nullptr; }

  // Requires: a sleeper; the calling thread holds the loop, as for run_one().
  void run() noexcept;
  // EventLoop::run_round.
  uint32_t run_one() noexcept;

  // Whether the invariants hold.
  bool is_valid() const noexcept;

 private:
  // How often a busy loop looks at the clock for its timers.
  static constexpr uint32_t kIterationsPerClock = 16;
  // Before a sleep that may last this long the loop gives empty pages back.
  static constexpr uint64_t kLongSleepNs = 10 * kNsPerMs;

  uint32_t poll_once() noexcept;
  uint32_t poll_timed(bool is_sample) noexcept;
  uint32_t run_calls(OwnerSet* askers) noexcept;
  void check_time() noexcept;
  uint32_t expire_timers() noexcept;
  void announce_sleep() noexcept;
  void announce_awake() noexcept;
  void sleep() noexcept;
  void return_pages_before(uint64_t deadline_ns) noexcept;
  uint64_t sleep_deadline_ns() const noexcept;

  EventLoopCounters own_counters_;  // used if the options have none
  const LoopParts loop_;
  EventLoopCounters& counters_;
  LoopSources sources_;
  LoopWork work_;
  AwakeTime awake_time_;
  IdleSpin idle_spin_;
  Sleeper* sleeper_ = nullptr;
  uint32_t rounds_to_measure_ = 0;  // rounds with work until the next measured one
  bool has_fresh_time_ = false;     // nothing ran since the last look at the clock
  bool may_have_pages_ = false;  // empty pages to return: the loop has worked since the last return
};

}  // namespace bedplate
