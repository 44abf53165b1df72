#include "transport/loop/loop_rounds.h"

#include <algorithm>
#include <utility>

#include "alloc/thread_heaps.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

LoopRounds::LoopRounds(const EventLoopOptions& options, const LoopParts& loop)
    : loop_(loop),
      counters_(options.counters == nullptr ? own_counters_ : *options.counters),
      sources_(options.source_count_max),
      work_(sources_, counters_,
            {.limit_ns = options.stall_ns,
             .counters = &counters_.stalled,
             .pulse = options.pulse,
             .plan = options.plan}),
      awake_time_(counters_, loop.clock.now_ns()),
      idle_spin_(options.spin_ns) {}

bool LoopRounds::is_valid() const noexcept {
  return rounds_to_measure_ < EventLoopCounters::kRoundsPerMeasure && sources_.is_valid() &&
         idle_spin_.is_valid() && loop_.timers.is_valid() && loop_.own_timers.is_valid();
}

void LoopRounds::set_sleeper(Sleeper& sleeper) noexcept {
  BP_REQUIRE(sleeper_ == nullptr, "a loop is given a second sleeper, and a shard's is its sockets: "
                                  "EventLoop::set_sleeper");
  sleeper_ = &sleeper;
}

uint32_t LoopRounds::poll_once() noexcept {
  BP_DCHECK(loop_.owner.is_held_by_caller());
  const bool is_sample = rounds_to_measure_ == 0 && has_fresh_time_;
  if (is_sample || work_.is_timing(loop_.clock.now_ns())) [[unlikely]]
    return poll_timed(is_sample);
  OwnerSet askers = 0;
  uint32_t work = run_calls(&askers);
  for (uint32_t i = 0; i < sources_.count(); ++i) {
    const uint32_t count = sources_[i].poll();
    work_.note_source(i, count);
    work += count;
  }
  counters_.iterations.add(1);
  if (work > 0 && rounds_to_measure_ > 0) --rounds_to_measure_;
  return work;
}

// poll_once(), with a look at the clock after each source that had work. For a while after a stall
// it looks after every source, since a source that blocks may return no work. Only a round with
// work counts as a sample, so that an idle loop pays for no clock calls.
uint32_t LoopRounds::poll_timed(bool is_sample) noexcept {
  BP_DCHECK(!is_sample || (has_fresh_time_ && rounds_to_measure_ == 0));
  const bool is_each_timed = work_.is_timing(loop_.clock.now_ns());
  const uint64_t begin_ns = is_sample ? loop_.clock.now_ns() : loop_.clock.read();
  uint64_t before_ns = begin_ns;
  OwnerSet askers = 0;
  uint32_t work = run_calls(&askers);
  if (work > 0 || is_each_timed) {
    before_ns = loop_.clock.read();
    if (is_each_timed) work_.mark_calls(before_ns, askers);
  }
  for (uint32_t i = 0; i < sources_.count(); ++i) {
    const LoopSource& source = sources_[i];
    const uint32_t count = source.poll();
    work_.note_source(i, count);
    work += count;
    if (count == 0 && !is_each_timed) continue;
    const uint64_t after_ns = loop_.clock.read();
    if (is_each_timed) work_.mark_source(after_ns, i);
    const uint64_t took_ns = after_ns - std::exchange(before_ns, after_ns);
    if (is_sample && count > 0 && source.counters != nullptr) source.counters->round.add(took_ns);
  }
  counters_.iterations.add(1);
  if (work == 0 || !is_sample) return work;
  counters_.round.add(before_ns - begin_ns);
  rounds_to_measure_ = EventLoopCounters::kRoundsPerMeasure - 1;
  return work;
}

uint32_t LoopRounds::run_calls(OwnerSet* askers) noexcept {
  const uint32_t count = loop_.calls.run(askers);
  if (count == 0) return 0;
  work_.note_calls(count, *askers);
  counters_.calls.add(count);
  return count;
}

void LoopRounds::check_time() noexcept {
  const uint64_t now_ns = loop_.clock.look();
  awake_time_.count(now_ns, work_.has_any());
  work_.mark_all(now_ns);
}

uint32_t LoopRounds::expire_timers() noexcept {
  OwnerSet of_services = 0;
  OwnerSet of_runtime = 0;
  const uint32_t count = loop_.timers.expire(loop_.clock.now_ns(), &of_services) +
                         loop_.own_timers.expire(loop_.clock.now_ns(), &of_runtime);
  has_fresh_time_ = count == 0;
  if (count == 0) return 0;
  may_have_pages_ = true;
  const OwnerSet askers = of_services | of_runtime;
  work_.note_timers(count, askers);
  if (work_.is_timing(loop_.clock.now_ns())) work_.mark_timers(loop_.clock.read(), askers);
  return count;
}

uint64_t LoopRounds::sleep_deadline_ns() const noexcept {
  const uint64_t limit_ns = sources_.sleep_max_ns();
  const uint64_t timer_ns =
      std::min(loop_.timers.next_deadline_ns(), loop_.own_timers.next_deadline_ns());
  if (limit_ns == PollSource::kUnlimitedNs) return timer_ns;
  return std::min(timer_ns, loop_.clock.read() + limit_ns);
}

void LoopRounds::return_pages_before(uint64_t deadline_ns) noexcept {
  if (deadline_ns != TimerQueue::kNever && deadline_ns < loop_.clock.read() + kLongSleepNs) return;
  may_have_pages_ = false;
  return_empty_pages();
}

void LoopRounds::announce_sleep() noexcept {
  has_fresh_time_ = false;  // announcing takes its time
  // The doorbell first: a source may have another thread that rings it.
  loop_.doorbell.announce_sleep();
  sources_.announce_sleep();
}

void LoopRounds::announce_awake() noexcept {
  sources_.announce_awake();
  loop_.doorbell.announce_awake();
}

void LoopRounds::sleep() noexcept {
  BP_KEEPS_VALID(*this);
  announce_sleep();
  // A thread that published before it saw the announcement did not ring: look once more.
  if (poll_once() == 0 && !loop_.must_stop.load(std::memory_order_acquire)) {
    counters_.sleeps.add(1);
    const uint64_t deadline_ns = sleep_deadline_ns();
    if (may_have_pages_) return_pages_before(deadline_ns);
    awake_time_.look_before_sleep(loop_.clock.now_ns());
    counters_.is_asleep.set(1);
    sleeper_->sleep_until(deadline_ns);
    counters_.is_asleep.set(0);
    const uint64_t now_ns = loop_.clock.look();
    awake_time_.skip(now_ns);
    work_.skip(now_ns);
  } else {
    may_have_pages_ = true;
    check_time();
  }
  announce_awake();
}

void LoopRounds::run() noexcept {
  BP_DCHECK(has_sleeper());
  const uint64_t begin_ns = loop_.clock.look();  // create() may be long ago
  awake_time_.begin(begin_ns);
  work_.begin(begin_ns);
  uint32_t iterations_to_clock = 0;
  while (!loop_.must_stop.load(std::memory_order_acquire)) {
    const uint32_t work = poll_once();
    has_fresh_time_ = false;
    if (work > 0) {
      may_have_pages_ = true;
      idle_spin_.find_work();
      if (iterations_to_clock-- > 0) continue;
    }
    iterations_to_clock = kIterationsPerClock;
    check_time();
    if (expire_timers() > 0 || work > 0) continue;
    if (idle_spin_.goes_on(loop_.clock.now_ns())) {
      cpu_relax();
      continue;
    }
    sleep();
    has_fresh_time_ = true;
  }
  awake_time_.look_at_cpu(loop_.clock.now_ns());
}

uint32_t LoopRounds::run_one() noexcept {
  uint32_t work = poll_once();
  check_time();
  work += expire_timers();
  if (work > 0) return work;
  announce_sleep();
  work = poll_once();
  announce_awake();
  return work;
}

}  // namespace bedplate
