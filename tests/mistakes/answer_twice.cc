// Finishes a later answer twice: its time-out and its completion do.
#include "tests/mistakes/session_mistake.h"

namespace bedplate {
namespace {

class AnswerTwice final : public LineSession {
 public:
  using LineSession::LineSession;

 private:
  void asked(uint64_t now_ns) noexcept override {
    LaterAnswer& answer = later();
    answer.say("late\n");
    answer.finish(now_ns);
    answer.finish(now_ns);
  }
};
SessionMistake<AnswerTwice> answer_twice("answer_twice");

}  // namespace
}  // namespace bedplate
