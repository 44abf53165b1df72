// Gives two later answers to one request.
#include "tests/mistakes/session_mistake.h"

namespace bedplate {
namespace {

class AnswersOfOneStep final : public LineSession {
 public:
  using LineSession::LineSession;

 private:
  void asked(uint64_t) noexcept override {
    (void)later();
    (void)later();
  }
};
SessionMistake<AnswersOfOneStep> answers_of_one_step("answers_of_one_step");

}  // namespace
}  // namespace bedplate
