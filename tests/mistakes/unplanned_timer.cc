// Arms a timer, and has planned none.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class UnplannedTimer final : public Mistake {
 public:
  UnplannedTimer() noexcept : Mistake("unplanned_timer") {}
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    return {};
  }
  void start(uint32_t) noexcept override { loop_->timers().arm(timer_, loop_->now_ns()); }

 private:
  EventLoop* loop_ = nullptr;
  Timer timer_ = {.expired = [](void*) noexcept {}};
} unplanned_timer;

}  // namespace
}  // namespace bedplate
