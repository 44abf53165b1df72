// Asks a shard's messenger for an endpoint on another thread.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class ConnectElsewhere final : public Mistake {
 public:
  ConnectElsewhere() noexcept : Mistake("connect_elsewhere") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.messages(0);
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    BP_TRY_ASSIGN(messenger_, context.messenger(0));
    return {};
  }
  void start(uint32_t) noexcept override {
    elsewhere(*loop_, [this] { (void)messenger_->connect({.name = "main"}); });
  }

 private:
  EventLoop* loop_ = nullptr;
  Messenger* messenger_ = nullptr;
} connect_elsewhere;

}  // namespace
}  // namespace bedplate
