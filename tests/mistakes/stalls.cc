// Keeps its shard busy twice in a timer, then in a call.
#include <ctime>

#include "platform/clock.h"
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class Stalls final : public Mistake {
 public:
  Stalls() noexcept : Mistake("stalls") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.timers(0, 1);
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    timer_.context = this;
    timer_.expired = [](void* self) noexcept { static_cast<Stalls*>(self)->expired(); };
    call_.function = [](void*) noexcept {
      be_busy();
      end();
    };
    return {};
  }
  void start(uint32_t) noexcept override { loop_->timers().arm(timer_, loop_->now_ns()); }

 private:
  // Uses processor time: time that other programs take is no stall.
  static void be_busy() noexcept {
    timespec now = {};
    const auto spent_ms = [&now] {
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return now.tv_sec * 1000 + now.tv_nsec / 1000000;
    };
    const auto end_ms = spent_ms() + 300;
    while (spent_ms() < end_ms) {
    }
  }
  // The loop times each timer and call only after the first stall.
  void expired() noexcept {
    be_busy();
    if (++count_ == 1) {
      loop_->timers().arm(timer_, monotonic_ns());  // later than this round
    } else {
      loop_->submit(call_);
    }
  }

  EventLoop* loop_ = nullptr;
  Timer timer_;
  LoopCall call_;
  int count_ = 0;
} stalls;

}  // namespace
}  // namespace bedplate
