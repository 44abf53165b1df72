// Answers a question twice.
#include "tests/mistakes/question_mistake.h"

namespace bedplate {
namespace {

class QuestionAnsweredTwice final : public QuestionMistake {
 public:
  QuestionAnsweredTwice() noexcept : QuestionMistake("question_answered_twice") {}
  void start(uint32_t) noexcept override { ask(question_); }

 private:
  ShardQuestion question_{[](ShardQuestion& self) noexcept {
    self.answer();
    self.answer();
  }};
} question_answered_twice;

}  // namespace
}  // namespace bedplate
