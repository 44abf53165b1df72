// Asks a question again before it is answered.
#include "tests/mistakes/question_mistake.h"

namespace bedplate {
namespace {

class QuestionAskedAgain final : public QuestionMistake {
 public:
  QuestionAskedAgain() noexcept : QuestionMistake("question_asked_again") {}
  void start(uint32_t) noexcept override {
    ask(question_);
    ask(question_);
  }

 private:
  ShardQuestion question_{[](ShardQuestion& self) noexcept { self.answer(); }};
} question_asked_again;

}  // namespace
}  // namespace bedplate
