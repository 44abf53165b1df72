// The event loop of a shard: poll sources in order, each with a budget; calls of other threads;
// timers; spin, then sleep.
//
// run() goes from round to round until stop(). A round runs the calls that other threads have
// submitted, then polls each source. A round without work, and a busy loop every 16 rounds, also
// looks at the clock and calls the timers that are due. While there is work the loop makes no
// system call of its own, but for a read of /proc now and then (stall_watch.h; not with stall_ns
// 0). When nothing has happened for the spin time (or at once, where spinning has not paid lately)
// it sleeps, until a socket, the doorbell, a timer or a source's sleep_max_ns() wakes it.
//
// EventLoop is what callers see: it holds the parts that they use inline. Its rounds are a class of
// their own, whose header tells them as a story (loop_rounds.h). That header is not installed, so
// compiled programs do not depend on it.
//
// Invariant, which is_valid() looks at: there are rounds from create() on, and their invariants
// hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "platform/result.h"
#include "platform/thread_owner.h"
#include "transport/loop/doorbell.h"
#include "transport/loop/loop_call_datapath.h"
#include "transport/loop/loop_clock.h"
#include "transport/loop/loop_counters.h"
#include "transport/loop/poll_source.h"
#include "transport/loop/timer_queue.h"

namespace bedplate {

class LoopRounds;
class ProcessPulse;
class ShardPlan;

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
  EventLoop() noexcept;
  ~EventLoop();

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

  // Whether the invariants hold. Threads: its own.
  bool is_valid() const noexcept;

 private:
  ThreadOwner owner_;
  Doorbell doorbell_;
  LoopCallQueue calls_;
  TimerQueue timers_{owner_};
  TimerQueue own_timers_{owner_};
  LoopClock clock_;
  std::atomic<bool> must_stop_{false};
  std::unique_ptr<LoopRounds> rounds_;  // from create() on
};

}  // namespace bedplate
