// The event loop of a shard: poll sources in order, each with a budget; timers; spin, then sleep.
//
//     run(), round after round until stop():
//       poll_once():
//         run_calls()          calls that other threads have submitted
//         each source:         poll(budget), in the name of the heap owner that added it
//         (1 busy round in 16: poll_timed(), which takes the time of each source with work)
//       with work:             the next round; 16 in a row look at no clock
//       check_time():          now_ns(); count busy or spin time; log what stalled the loop
//       expire_timers():       those that are due, of services and of the runtime; if there were
//                              some, the next round
//       idle:                  spin for spin_ns, if spin_pays()
//       sleep():
//         announce_sleep()     the doorbell and each source; from now on producers ring
//         poll_once()          again: what came before the announcement did not ring
//         nothing:             return_pages_before() a long sleep; sleep_until() of the sleeper:
//                              the doorbell, a socket, sleep_deadline_ns() end it
//         announce_awake()
//
// One thread runs it. While there is work it makes no system call of its own, but for a read of
// /proc now and then (stall_watch.h; not with stall_ns 0). When nothing has happened for the spin
// time (or at once, where spinning has not paid lately) it announces on the doorbell that it
// sleeps, looks at every source once more, and blocks in its sleeper until a socket, the doorbell,
// a timer or a source's sleep_max_ns() wakes it. After some work, before the first sleep that may
// last kLongSleepNs, it gives the empty pages of its thread's heaps back to the pool's heap.
//
// Invariants, which is_valid() looks at, before and after each sleep: 1. Each source is there and
// has a budget, and there are at most source_count_max. 2. Idle periods without a spin are fewer
// than 2^kFailedSpinsMax. 3. The next sample is at most kRoundsPerMeasure rounds away. 4. The
// timers are valid (timer_queue.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "alloc/heap_owner.h"
#include "platform/cache_line.h"
#include "platform/thread_owner.h"
#include "transport/loop/doorbell.h"
#include "transport/loop/loop_call_datapath.h"
#include "transport/loop/loop_clock.h"
#include "transport/loop/loop_counters.h"
#include "transport/loop/poll_source.h"
#include "transport/loop/stall_watch.h"
#include "transport/loop/timer_queue.h"

namespace bedplate {

struct EventLoopOptions {
  uint64_t spin_ns = 50'000;  // how long it spins without work before it sleeps
  uint32_t source_count_max = 16;
  // Work that keeps the loop for longer is logged by name and counted
  // (transport/loop/stall_watch.h); 0: no limit.
  uint64_t stall_ns = 0;
  // Tells how long the whole process stood still, which is no stall; may be nullptr. Outlives the
  // loop.
  const ProcessPulse* pulse = nullptr;
  // The plan of the shard: the timers of its services, and their names for the log of stalls. It
  // outlives the loop. nullptr: the loop is no shard's.
  ShardPlan* plan = nullptr;
  EventLoopCounters* counters = nullptr;  // outlive the loop; may be nullptr
  // The time, set by a test; nullptr: the loop reads the machine's clock. Outlives the loop.
  const uint64_t* test_clock_ns = nullptr;
};

// Threads: before run() any one; then the thread of run(). Any thread: stop(), submit() and
// doorbell().ring(). Nothing is allocated after create() and the reservation of timers.
class EventLoop {
 public:
  // Requires: called once, before all else. Before the seal: it allocates. Errors (kSystem): no
  // descriptor is left for the doorbell.
  Result<void> create(const EventLoopOptions& options);

  // Adds a source. The loop polls the sources in this order, each with its `budget` (over 0).
  // Before run(). Requires: source_count_max allows it. `name`: for the log of stalls; never
  // nullptr. `counters`: nullptr, or perhaps shared with other sources. Ownership: all three
  // outlive the loop's run.
  void add_source(PollSource& source, uint32_t budget, const char* name = "a poll source",
                  SourceCounters* counters = nullptr) noexcept;
  // Sets the sleeper of the loop, once. On a shard of an appliance it is the sockets: no other
  // sleeper wakes for them. An application that waits for more adds a source and rings the
  // doorbell. Requires: the loop has none yet. Before run().
  void set_sleeper(Sleeper& sleeper) noexcept;

  // Runs until stop(), on the calling thread, which is the loop's from then on. Requires: a
  // sleeper; called once.
  void run() noexcept;
  // One round of run(), for a test that drives the loop itself. If there is nothing to do, it looks
  // once more, as before a sleep, but does not sleep. Returns how much there was to do. Requires:
  // run() was not called. Threads: one at a time.
  uint32_t run_round() noexcept;
  // Makes run() return after its present iteration. After an earlier stop(), run() returns at once.
  // Threads: any.
  void stop() noexcept;

  // Makes this loop's thread call `call` soon; calls of one thread run in their order. Returns
  // false if the call is already pending: it then runs once for both submitters, and sees what
  // either wrote before. A call that is pending when run() returns never runs. Ownership: the call
  // stays in place until it runs; its function may already submit or free it. Threads: any. Cost:
  // two atomic operations and a ring of the doorbell.
  bool submit(LoopCall& call) noexcept {
    const bool is_new = calls_.push(call);
    doorbell_.ring();
    return is_new;
  }

  // Whether the caller may use the loop's state: while the loop runs, only its own thread may.
  // Threads: any.
  bool is_own_thread() const noexcept { return owner_.is_caller(); }
  // For objects that belong to the loop (ThreadOwner::follow).
  const ThreadOwner& thread() const noexcept { return owner_; }

  // The timers of services, as many as they have planned (ServicePlan::timers).
  TimerQueue& timers() noexcept {
    BP_DREQUIRE_THREAD(is_own_thread(), "EventLoop::timers");
    return timers_;
  }
  // The runtime's own timers: those of sockets, stream servers and the like, each with space of its
  // own, which services cannot take.
  TimerQueue& own_timers() noexcept {
    BP_DREQUIRE_THREAD(is_own_thread(), "EventLoop::own_timers");
    return own_timers_;
  }
  Doorbell& doorbell() noexcept { return doorbell_; }

  // The time of the last look at the clock (monotonic_ns()): that of this iteration, or, while the
  // loop is busy, up to 16 iterations old. This is enough for timers, and saves a clock call for
  // each.
  uint64_t now_ns() const noexcept {
    BP_DREQUIRE_THREAD(is_own_thread(), "EventLoop::now_ns");
    return clock_.now_ns();
  }
  // Reads the clock, and makes the result the time of this iteration. For code that measures time:
  // once for a whole batch. Threads: the loop's own. Cost: a clock call.
  uint64_t look_at_clock() noexcept {
    BP_DREQUIRE_THREAD(is_own_thread(), "EventLoop::look_at_clock");
    return clock_.look();
  }

  // The loop measures one in this many rounds with work: it looks at the clock after each source
  // that had work. This costs busy rounds 2 ns each on average, and idle rounds nothing.
  static constexpr uint32_t kRoundsPerMeasure = 16;

  // Whether the invariants hold. Threads: its own.
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
  // Before a sleep the loop asks for the thread's processor time, at most once in this interval.
  static constexpr uint64_t kCpuLookNs = 10 * kNsPerMs;
  // How often a busy loop looks at the clock for its timers.
  static constexpr uint32_t kIterationsPerClock = 16;
  // Before a sleep that may last this long the loop gives empty pages back.
  static constexpr uint64_t kLongSleepNs = 10 * kNsPerMs;
  // After this many failed spins the loop still spins in one idle period of 2^8.
  static constexpr uint32_t kFailedSpinsMax = 8;

  uint32_t poll_once() noexcept;
  uint32_t poll_timed(bool is_sample) noexcept;
  uint32_t run_calls() noexcept;
  void check_time() noexcept;
  void count_time() noexcept;
  void begin_counting() noexcept;
  void count_work_of_sleeps() noexcept;
  uint64_t counted_awake_ns() const noexcept;
  void count_stall(uint32_t bit) noexcept;
  uint32_t expire_timers() noexcept;
  void note_work(uint32_t bit, uint32_t count) noexcept { had_work_ |= uint64_t{count > 0} << bit; }
  const char* those_with_work(char* text, size_t text_bytes) const noexcept;
  void announce_sleep() noexcept;
  void announce_awake() noexcept;
  void sleep() noexcept;
  void return_pages_before(uint64_t deadline_ns) noexcept;
  uint64_t sleep_deadline_ns() const noexcept;
  bool spin_pays() noexcept;

  EventLoopOptions options_;
  ThreadOwner owner_;
  EventLoopCounters own_counters_;
  Doorbell doorbell_;
  LoopCallQueue calls_;
  TimerQueue timers_{owner_};
  TimerQueue own_timers_{owner_};
  LoopClock clock_;
  Sleeper* sleeper_ = nullptr;
  std::unique_ptr<SourceSlot[]> sources_;
  uint32_t source_count_ = 0;
  uint64_t counted_ns_ = 0;         // time is counted up to here
  uint64_t cpu_looked_ns_ = 0;      // when the loop last asked for the thread's processor time
  uint64_t cpu_ns_ = 0;             // the processor time then
  uint64_t cpu_counted_ns_ = 0;     // the busy and spin time counted by then
  bool has_fresh_time_ = false;     // nothing ran since the last look at the clock
  uint32_t rounds_to_measure_ = 0;  // rounds with work until the next measured one
  StallWatch stall_watch_;
  bool may_have_pages_ = false;  // empty pages to return: the loop has worked since the last return
  uint64_t had_work_ = 0;        // since the last look at the clock
  uint32_t timer_askers_ = 0;    // heap owners of the timers, and of the calls, of that work
  uint32_t call_askers_ = 0;
  uint32_t failed_spins_ = 0;  // in a row
  uint32_t spins_to_skip_ = 0;
  std::atomic<bool> must_stop_{false};
};

}  // namespace bedplate
