// Arms a timer of a shard on another thread.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class TimerElsewhere final : public Mistake {
 public:
  TimerElsewhere() noexcept : Mistake("timer_elsewhere") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.timers(0, 1);
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    return {};
  }
  void start(uint32_t) noexcept override {
    elsewhere(*loop_, [this] { loop_->timers().arm(timer_, 0); });
  }

 private:
  EventLoop* loop_ = nullptr;
  Timer timer_ = {.expired = [](void*) noexcept {}};
} timer_elsewhere;

}  // namespace
}  // namespace bedplate
