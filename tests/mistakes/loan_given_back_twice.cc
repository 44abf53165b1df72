// Gives a loan back twice.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class LoanGivenBackTwice final : public Mistake {
 public:
  LoanGivenBackTwice() noexcept : Mistake("loan_given_back_twice") {}
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
                                     auto& its = *static_cast<LoanGivenBackTwice*>(self);
                                     its.messenger_->release(message.loan);
                                     its.messenger_->release(message.loan);
                                   },
                                   this});
    return {};
  }
  void start(uint32_t) noexcept override {
    (void)self_->am_send_loan(put_, {}, block_, &returned_);
  }

 private:
  Messenger* messenger_ = nullptr;
  AmId put_ = 0;
  Endpoint* self_ = nullptr;
  std::byte block_[64];
  Completion returned_ = {[](Completion&, Outcome) noexcept {}};
} loan_given_back_twice;

}  // namespace
}  // namespace bedplate
