// Waits within a handler for the next message.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class PollInAHandler final : public Mistake {
 public:
  PollInAHandler() noexcept : Mistake("poll_in_a_handler") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.messages(0);
    plan.message("put");
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(messenger_, context.messenger(0));
    BP_TRY_ASSIGN(put_, context.message("put"));
    BP_TRY_ASSIGN(self_, messenger_->connect({.name = "main"}));
    messenger_->set_handler(put_, {[](void* self, const Message& message) noexcept {
                                     auto& its = *static_cast<PollInAHandler*>(self);
                                     (void)message.from.am_send(message.id, {});
                                     its.messenger_->poll(1);
                                   },
                                   this});
    return {};
  }
  void start(uint32_t) noexcept override { (void)self_->am_send(put_, {}); }

 private:
  Messenger* messenger_ = nullptr;
  AmId put_ = 0;
  Endpoint* self_ = nullptr;
} poll_in_a_handler;

}  // namespace
}  // namespace bedplate
