// Finishes an answer when the client has left, and has finished it before.
#include "tests/mistakes/session_mistake.h"

namespace bedplate {
namespace {

class AnswerAfterTheClientLeft final : public LineSession {
 public:
  using LineSession::LineSession;

 private:
  void asked(uint64_t now_ns) noexcept override {
    answer_ = &later();
    answer_->say("1\n");
    answer_->finish(now_ns);
  }
  void left() noexcept override { answer_->finish(loop().now_ns()); }

  LaterAnswer* answer_ = nullptr;
};
SessionMistake<AnswerAfterTheClientLeft> answer_after_the_client_left(
    "answer_after_the_client_left");

}  // namespace
}  // namespace bedplate
