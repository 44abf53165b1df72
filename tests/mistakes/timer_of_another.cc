// Arms the timer that another service has planned. A release compares only the sum of all services.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class TimerOfAnother final : public Mistake {
 public:
  TimerOfAnother() noexcept : Mistake("timer_of_another") {}
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    return {};
  }
  void start(uint32_t) noexcept override { loop_->timers().arm(timer_, loop_->now_ns()); }

 private:
  EventLoop* loop_ = nullptr;
  Timer timer_ = {.expired = [](void*) noexcept { end(); }};
} timer_of_another;

}  // namespace
}  // namespace bedplate
