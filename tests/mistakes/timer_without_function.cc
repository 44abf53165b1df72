// Arms a timer that nobody hears of.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class TimerWithoutFunction final : public Mistake {
 public:
  TimerWithoutFunction() noexcept : Mistake("timer_without_function") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.timers(0, 1);
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    return {};
  }
  void start(uint32_t) noexcept override { loop_->timers().arm(timer_, loop_->now_ns()); }

 private:
  EventLoop* loop_ = nullptr;
  Timer timer_;
} timer_without_function;

}  // namespace
}  // namespace bedplate
