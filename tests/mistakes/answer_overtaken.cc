// Answers later, and says the rest of the answer at once.
#include "tests/mistakes/session_mistake.h"

namespace bedplate {
namespace {

class AnswerOvertaken final : public LineSession {
 public:
  using LineSession::LineSession;

 private:
  void asked(uint64_t) noexcept override {
    (void)later();
    say("2\n");
  }
};
SessionMistake<AnswerOvertaken> answer_overtaken("answer_overtaken");

}  // namespace
}  // namespace bedplate
