// Never finishes a later answer, since its client has left. The drain waits for it.
#include "tests/mistakes/session_mistake.h"

namespace bedplate {
namespace {

class AnswerNever final : public LineSession {
 public:
  using LineSession::LineSession;

 private:
  void asked(uint64_t) noexcept override {
    (void)later();
    Mistake::end();
  }
};
SessionMistake<AnswerNever> answer_never("answer_never");

}  // namespace
}  // namespace bedplate
