// Finishes a later answer on another thread.
#include "tests/mistakes/session_mistake.h"

namespace bedplate {
namespace {

class AnswerElsewhere final : public LineSession {
 public:
  using LineSession::LineSession;

 private:
  void asked(uint64_t) noexcept override {
    answer_ = &later();
    loop().submit(after_the_step_);
  }

  LaterAnswer* answer_ = nullptr;
  LoopCall after_the_step_ = {.function =
                                  [](void* self) noexcept {
                                    auto& its = *static_cast<AnswerElsewhere*>(self);
                                    Mistake::elsewhere(its.loop(),
                                                       [&its] { its.answer_->finish(0); });
                                  },
                              .context = this};
};
SessionMistake<AnswerElsewhere> answer_elsewhere("answer_elsewhere");

}  // namespace
}  // namespace bedplate
