#include "transport/event_loop.h"

#include <algorithm>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

Result<void> EventLoop::create(const EventLoopOptions& options) {
  options_ = options;
  if (options_.counters == nullptr) options_.counters = &own_counters_;
  sources_ = std::make_unique<SourceSlot[]>(options.source_count_max);
  now_ns_ = monotonic_ns();
  return doorbell_.create();
}

void EventLoop::add_source(PollSource& source, uint32_t budget,
                           Histogram* rounds) noexcept {
  BP_ASSERT(source_count_ < options_.source_count_max);
  BP_ASSERT(budget > 0);
  sources_[source_count_++] = {&source, budget, rounds};
}

void EventLoop::set_sleeper(Sleeper& sleeper) noexcept {
  BP_ASSERT(sleeper_ == nullptr && "a loop has one sleeper; a shard's is its sockets");
  sleeper_ = &sleeper;
}

void EventLoop::stop() noexcept {
  must_stop_.store(true, std::memory_order_release);
  doorbell_.ring();
}

uint32_t EventLoop::poll_once() noexcept {
  if (rounds_to_measure_ == 0 && has_fresh_time_) return measure_round();
  uint32_t work = calls_.run();
  for (uint32_t i = 0; i < source_count_; ++i) {
    work += sources_[i].source->poll(sources_[i].budget);
  }
  options_.counters->iterations.add(1);
  if (work > 0 && rounds_to_measure_ > 0) --rounds_to_measure_;
  return work;
}

// The same; what a source has done is timed from the end of what was done before it. Only a round
// with work counts as measured, so that an idle loop looks at no clock for it.
uint32_t EventLoop::measure_round() noexcept {
  const uint64_t begin_ns = now_ns_;
  uint64_t before_ns = begin_ns;
  uint32_t work = calls_.run();
  if (work > 0) before_ns = monotonic_ns();
  for (uint32_t i = 0; i < source_count_; ++i) {
    const uint32_t done = sources_[i].source->poll(sources_[i].budget);
    if (done == 0) continue;
    work += done;
    const uint64_t after_ns = monotonic_ns();
    if (sources_[i].rounds != nullptr) sources_[i].rounds->add(after_ns - before_ns);
    before_ns = after_ns;
  }
  options_.counters->iterations.add(1);
  if (work == 0) return 0;
  options_.counters->round.add(before_ns - begin_ns);
  rounds_to_measure_ = kRoundsPerMeasure - 1;
  return work;
}

void EventLoop::note_busy_time(uint64_t before_ns) noexcept {
  const uint64_t busy_ns = now_ns_ - before_ns;
  Counter& longest = options_.counters->busy_longest_ns;
  if (busy_ns > longest.read()) longest.set(busy_ns);
}

void EventLoop::sleep() noexcept {
  has_fresh_time_ = false;  // announcing takes its time
  // The doorbell first: a source may have another thread that rings it.
  doorbell_.announce_sleep();
  for (uint32_t i = 0; i < source_count_; ++i) sources_[i].source->announce_sleep();
  // A thread that published before it saw the announcement did not ring: look once more.
  if (poll_once() == 0 && !must_stop_.load(std::memory_order_acquire)) {
    options_.counters->sleeps.add(1);
    sleeper_->sleep_until(timers_.next_deadline_ns());
  }
  for (uint32_t i = 0; i < source_count_; ++i) sources_[i].source->announce_awake();
  doorbell_.announce_awake();
}

// Whether this idle period is worth spinning for. Spinning pays when work comes soon; where it does
// not, because nobody asks or because whoever would ask waits for this very core, it only takes the
// core from others. So each spin that ends in a sleep lets twice as many idle periods pass without
// one, up to a limit, and the first that is ended by work makes the next one spin at once.
bool EventLoop::spin_pays() noexcept {
  if (spins_to_skip_ == 0) return true;
  --spins_to_skip_;
  return false;
}

void EventLoop::run() noexcept {
  BP_ASSERT(sleeper_ != nullptr);
  now_ns_ = monotonic_ns();  // create() may be long ago
  uint64_t spin_until_ns = 0;  // 0: not idle
  uint32_t iterations_to_clock = 0;
  uint64_t last_look_ns = now_ns_;
  bool has_worked = false;  // since the last look
  while (!must_stop_.load(std::memory_order_acquire)) {
    const uint32_t work = poll_once();
    has_fresh_time_ = false;
    if (work > 0) {
      has_worked = true;
      if (spin_until_ns != 0) failed_spins_ = 0;
      spin_until_ns = 0;
      if (iterations_to_clock-- > 0) continue;
    }
    iterations_to_clock = kIterationsPerClock;
    look_at_clock();
    if (has_worked) note_busy_time(last_look_ns);
    has_worked = false;
    last_look_ns = now_ns_;
    const uint32_t expired = timers_.expire(now_ns_);
    has_fresh_time_ = expired == 0;
    if (expired > 0 || work > 0) continue;
    if (spin_until_ns == 0 && spin_pays()) spin_until_ns = now_ns_ + options_.spin_ns;
    if (now_ns_ < spin_until_ns) {
      cpu_relax();
      continue;
    }
    if (spin_until_ns != 0) {  // it spun in vain
      spins_to_skip_ = (1U << failed_spins_) - 1;
      failed_spins_ = std::min(failed_spins_ + 1, kFailedSpinsMax);
    }
    sleep();
    last_look_ns = look_at_clock();
    has_fresh_time_ = true;
    spin_until_ns = 0;
  }
}

}  // namespace bedplate
