// Asks a question on another thread.
#include "tests/mistakes/question_mistake.h"

namespace bedplate {
namespace {

class QuestionElsewhere final : public QuestionMistake {
 public:
  QuestionElsewhere() noexcept : QuestionMistake("question_elsewhere") {}
  void start(uint32_t) noexcept override {
    elsewhere(loop(), [this] { ask(question_); });
  }

 private:
  ShardQuestion question_{[](ShardQuestion& self) noexcept { self.answer(); }};
} question_elsewhere;

}  // namespace
}  // namespace bedplate
