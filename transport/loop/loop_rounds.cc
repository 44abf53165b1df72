#include "transport/loop/loop_rounds.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "alloc/thread_heaps.h"
#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

// In the log of stalls.
static constexpr char kCall[] = "a call from another thread";
static constexpr char kTimer[] = "a timer";

LoopRounds::LoopRounds(const EventLoopOptions& options, const LoopParts& loop)
    : options_(options),
      loop_(loop),
      counters_(options.counters == nullptr ? own_counters_ : *options.counters),
      awake_time_(counters_, loop.clock.now_ns()),
      idle_spin_(options.spin_ns),
      sources_(std::make_unique<SourceSlot[]>(options.source_count_max)) {}

bool LoopRounds::is_valid() const noexcept {
  if (source_count_ > options_.source_count_max) return false;
  for (uint32_t i = 0; i < source_count_; ++i) {
    const SourceSlot& slot = sources_[i];
    if (slot.source == nullptr || slot.budget == 0 || slot.name == nullptr) return false;
  }
  return idle_spin_.is_valid() && rounds_to_measure_ < EventLoopCounters::kRoundsPerMeasure &&
         loop_.timers.is_valid() && loop_.own_timers.is_valid();
}

void LoopRounds::add_source(PollSource& source, uint32_t budget, const char* name,
                            SourceCounters* counters) noexcept {
  BP_REQUIRE(source_count_ < options_.source_count_max,
             "more sources are added to a loop than it may have, %u: "
             "EventLoopOptions::source_count_max",
             options_.source_count_max);
  BP_REQUIRE(budget > 0 && name != nullptr,
             "a source is added without a budget or a name: EventLoop::add_source");
  sources_[source_count_++] = {&source, budget, name, counters, current_heap_owner()};
}

void LoopRounds::set_sleeper(Sleeper& sleeper) noexcept {
  BP_REQUIRE(sleeper_ == nullptr, "a loop is given a second sleeper, and a shard's is its sockets: "
                                  "EventLoop::set_sleeper");
  sleeper_ = &sleeper;
}

uint32_t LoopRounds::poll_once() noexcept {
  BP_DCHECK(loop_.owner.is_held_by_caller());
  const bool is_sample = rounds_to_measure_ == 0 && has_fresh_time_;
  if (is_sample || stall_watch_.is_timing(loop_.clock.now_ns())) [[unlikely]]
    return poll_timed(is_sample);
  uint32_t work = run_calls();
  for (uint32_t i = 0; i < source_count_; ++i) {
    follow_heap_owner(sources_[i].asker);
    const uint32_t count = sources_[i].source->poll(sources_[i].budget);
    note_work(std::min(kSourcesBit + i, kLastBit), count);
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
  const bool is_each_timed = stall_watch_.is_timing(loop_.clock.now_ns());
  const uint64_t begin_ns = is_sample ? loop_.clock.now_ns() : loop_.clock.read();
  uint64_t before_ns = begin_ns;
  const auto take_time = [&](uint32_t bit, const char* name, OwnerSet askers = 0) {
    const uint64_t after_ns = loop_.clock.read();
    if (is_each_timed && stall_watch_.mark(after_ns, name, askers)) count_stall(bit);
    return after_ns - std::exchange(before_ns, after_ns);
  };
  const OwnerSet earlier_askers = std::exchange(call_askers_, 0);
  uint32_t work = run_calls();
  if (work > 0 || is_each_timed) take_time(kCallsBit, kCall, call_askers_);
  call_askers_ |= earlier_askers;
  for (uint32_t i = 0; i < source_count_; ++i) {
    const SourceSlot& slot = sources_[i];
    follow_heap_owner(slot.asker);
    const uint32_t done = slot.source->poll(slot.budget);
    note_work(std::min(kSourcesBit + i, kLastBit), done);
    work += done;
    if (done == 0 && !is_each_timed) continue;
    const uint64_t took_ns = take_time(kSourcesBit + i, slot.name);
    if (is_sample && done > 0 && slot.counters != nullptr) slot.counters->round.add(took_ns);
  }
  counters_.iterations.add(1);
  if (work == 0 || !is_sample) return work;
  counters_.round.add(before_ns - begin_ns);
  rounds_to_measure_ = EventLoopCounters::kRoundsPerMeasure - 1;
  return work;
}

const char* LoopRounds::those_with_work(char* text, size_t text_bytes) const noexcept {
  std::snprintf(text, text_bytes, "nothing");
  size_t used = 0;
  const auto add = [&](uint32_t bit, const char* name, OwnerSet askers = 0) {
    if ((had_work_ >> bit & 1) == 0 || used >= text_bytes) return;
    char services[128] = "";
    if (options_.plan != nullptr) options_.plan->list(askers, services, sizeof services);
    used += static_cast<size_t>(std::snprintf(text + used, text_bytes - used, "%s%s%s",
                                              used == 0 ? "" : ", ", name, services));
  };
  add(kTimersBit, kTimer, timer_askers_);
  add(kCallsBit, kCall, call_askers_);
  for (uint32_t i = 0; i < source_count_; ++i) {
    add(std::min(kSourcesBit + i, kLastBit), sources_[i].name);
  }
  return text;
}

uint32_t LoopRounds::run_calls() noexcept {
  OwnerSet askers = 0;
  const uint32_t count = loop_.calls.run(&askers);
  note_work(kCallsBit, count);
  if (count == 0) return 0;
  counters_.calls.add(count);
  call_askers_ |= askers;
  return count;
}

// Counts a stall of the calls, of the timers or of a source, as `bit` of had_work_ says.
void LoopRounds::count_stall(uint32_t bit) noexcept {
  if (bit == kCallsBit) return counters_.call_stalls.add(1);
  if (bit == kTimersBit) return counters_.timer_stalls.add(1);
  SourceCounters* counters = sources_[bit - kSourcesBit].counters;
  if (counters != nullptr) counters->stalls.add(1);
}

void LoopRounds::check_time() noexcept {
  awake_time_.count(loop_.clock.look(), had_work_ != 0);
  if (stall_watch_.is_too_long(loop_.clock.now_ns())) [[unlikely]] {
    char text[256];
    if (stall_watch_.mark_any(loop_.clock.now_ns(), those_with_work(text, sizeof text))) {
      for (uint32_t bit = 0; bit < kSourcesBit + source_count_; ++bit) {
        if (had_work_ >> std::min(bit, kLastBit) & 1) count_stall(bit);
      }
    }
  }
  stall_watch_.skip(loop_.clock.now_ns());
  stall_watch_.look_at_lost(loop_.clock.now_ns());
  had_work_ = 0;
  timer_askers_ = call_askers_ = 0;
}

uint32_t LoopRounds::expire_timers() noexcept {
  OwnerSet of_services = 0;
  OwnerSet of_runtime = 0;
  const uint32_t count = loop_.timers.expire(loop_.clock.now_ns(), &of_services) +
                         loop_.own_timers.expire(loop_.clock.now_ns(), &of_runtime);
  has_fresh_time_ = count == 0;
  if (count == 0) return 0;
  may_have_pages_ = true;
  timer_askers_ |= of_services | of_runtime;
  note_work(kTimersBit, count);
  if (stall_watch_.is_timing(loop_.clock.now_ns()) &&
      stall_watch_.mark(loop_.clock.read(), kTimer, of_services | of_runtime)) {
    count_stall(kTimersBit);
  }
  return count;
}

uint64_t LoopRounds::sleep_deadline_ns() const noexcept {
  uint64_t limit_ns = PollSource::kUnlimitedNs;
  for (uint32_t i = 0; i < source_count_; ++i) {
    limit_ns = std::min(limit_ns, sources_[i].source->sleep_max_ns());
  }
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
  for (uint32_t i = 0; i < source_count_; ++i) {
    follow_heap_owner(sources_[i].asker);  // it may start a watch
    sources_[i].source->announce_sleep();
  }
}

void LoopRounds::announce_awake() noexcept {
  for (uint32_t i = 0; i < source_count_; ++i) sources_[i].source->announce_awake();
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
    awake_time_.skip(loop_.clock.look());
    stall_watch_.skip(loop_.clock.now_ns());
  } else {
    may_have_pages_ = true;
    check_time();
  }
  announce_awake();
}

void LoopRounds::run() noexcept {
  BP_DCHECK(has_sleeper());
  awake_time_.begin(loop_.clock.look());  // create() may be long ago
  stall_watch_.begin({.limit_ns = options_.stall_ns,
                      .counters = &counters_.stalled,
                      .pulse = options_.pulse,
                      .plan = options_.plan},
                     loop_.clock.now_ns());
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
