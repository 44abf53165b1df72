// Asks two questions at once, and has planned one.
#include "tests/mistakes/question_mistake.h"

namespace bedplate {
namespace {

class UnplannedQuestion final : public QuestionMistake {
 public:
  UnplannedQuestion() noexcept : QuestionMistake("unplanned_question") {}
  void start(uint32_t) noexcept override {
    ask(first_);
    ask(second_);
  }

 private:
  ShardQuestion first_{[](ShardQuestion& self) noexcept { self.answer(); }};
  ShardQuestion second_{[](ShardQuestion& self) noexcept { self.answer(); }};
} unplanned_question;

}  // namespace
}  // namespace bedplate
