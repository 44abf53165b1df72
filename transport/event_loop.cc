#include "transport/event_loop.h"

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

Result<void> EventLoop::create(const EventLoopOptions& options) noexcept {
  options_ = options;
  if (options_.counters == nullptr) options_.counters = &own_counters_;
  now_ns_ = monotonic_ns();
  return doorbell_.create();
}

void EventLoop::add_source(PollSource& source, uint32_t budget) noexcept {
  BP_ASSERT(source_count_ < kSourceCountMax);
  BP_ASSERT(budget > 0);
  sources_[source_count_++] = {&source, budget};
}

void EventLoop::stop() noexcept {
  must_stop_.store(true, std::memory_order_release);
  doorbell_.ring();
}

uint32_t EventLoop::poll_once() noexcept {
  uint32_t work = 0;
  for (uint32_t i = 0; i < source_count_; ++i) {
    work += sources_[i].source->poll(sources_[i].budget);
  }
  options_.counters->iterations.add(1);
  return work;
}

void EventLoop::sleep() noexcept {
  doorbell_.announce_sleep();
  // Whoever published before seeing the announcement did not ring: look once more.
  if (poll_once() == 0 && !must_stop_.load(std::memory_order_acquire)) {
    options_.counters->sleeps.add(1);
    sleeper_->sleep_until(timers_.next_deadline_ns());
  }
  doorbell_.announce_awake();
}

void EventLoop::run() noexcept {
  BP_ASSERT(sleeper_ != nullptr);
  uint64_t idle_since_ns = 0;  // 0: not idle
  uint32_t iterations_to_clock = 0;
  while (!must_stop_.load(std::memory_order_acquire)) {
    const uint32_t work = poll_once();
    if (work > 0) {
      idle_since_ns = 0;
      if (iterations_to_clock-- > 0) continue;
    }
    iterations_to_clock = kIterationsPerClock;
    now_ns_ = monotonic_ns();
    if (timers_.expire(now_ns_) > 0 || work > 0) continue;
    if (idle_since_ns == 0) idle_since_ns = now_ns_;
    if (now_ns_ - idle_since_ns < options_.spin_ns) {
      cpu_relax();
      continue;
    }
    sleep();
    now_ns_ = monotonic_ns();
    idle_since_ns = 0;
  }
}

}  // namespace bedplate
