// Sends to its own shard on another thread. A release notices it when no further message fits: the
// shard sleeps, and nothing wakes it.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class SendElsewhere final : public Mistake {
 public:
  SendElsewhere() noexcept : Mistake("send_elsewhere") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.messages(0);
    plan.message("put");
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    BP_TRY_ASSIGN(auto* messenger, context.messenger(0));
    BP_TRY_ASSIGN(put_, context.message("put"));
    BP_TRY_ASSIGN(self_, messenger->connect({.name = "main"}));
    return {};
  }
  void start(uint32_t) noexcept override {
    elsewhere(*loop_, [this] {
      for (;;) (void)self_->am_send(put_, {});
    });
  }

 private:
  EventLoop* loop_ = nullptr;
  AmId put_ = 0;
  Endpoint* self_ = nullptr;
} send_elsewhere;

}  // namespace
}  // namespace bedplate
