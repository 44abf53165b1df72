#include "transport/loop/event_loop.h"

#include "platform/assert.h"
#include "transport/loop/loop_rounds.h"

namespace bedplate {

EventLoop::EventLoop() noexcept = default;
EventLoop::~EventLoop() = default;

bool EventLoop::is_valid() const noexcept { return rounds_ != nullptr && rounds_->is_valid(); }

Result<void> EventLoop::create(const EventLoopOptions& options) {
  BP_ASSERT(rounds_ == nullptr);
  if (options.plan != nullptr) timers_.reserve(*options.plan);
  clock_.create(options.test_clock_ns);
  rounds_ = std::make_unique<LoopRounds>(options, LoopParts{.owner = owner_,
                                                            .doorbell = doorbell_,
                                                            .calls = calls_,
                                                            .timers = timers_,
                                                            .own_timers = own_timers_,
                                                            .clock = clock_,
                                                            .must_stop = must_stop_});
  return doorbell_.create();
}

void EventLoop::add_source(PollSource& source, uint32_t budget, const char* name,
                           SourceCounters* counters) noexcept {
  BP_ASSERT(rounds_ != nullptr);
  BP_REQUIRE(!owner_.is_held(), "a source is added to a loop that runs: EventLoop::add_source");
  rounds_->sources().add(source, budget, name, counters);
}

void EventLoop::set_sleeper(Sleeper& sleeper) noexcept {
  BP_ASSERT(rounds_ != nullptr);
  BP_REQUIRE(!owner_.is_held(), "a loop that runs is given a sleeper: EventLoop::set_sleeper");
  rounds_->set_sleeper(sleeper);
}

void EventLoop::stop() noexcept {
  must_stop_.store(true, std::memory_order_release);
  doorbell_.ring();
}

void EventLoop::run() noexcept {
  BP_REQUIRE(rounds_ != nullptr && rounds_->has_sleeper() && !owner_.is_held(),
             "a loop runs that has no sleeper, or runs already: EventLoop::run");
  const ThreadOwner::Hold hold(owner_);
  BP_KEEPS_VALID(*this);
  rounds_->run();
}

uint32_t EventLoop::run_round() noexcept {
  BP_ASSERT(rounds_ != nullptr);
  const ThreadOwner::Hold hold(owner_);
  BP_KEEPS_VALID(*this);
  return rounds_->run_one();
}

}  // namespace bedplate
