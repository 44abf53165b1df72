// Says more in a step than the limit of a step.
#include "tests/mistakes/session_mistake.h"

namespace bedplate {
namespace {

class AnswerTooLong final : public LineSession {
 public:
  using LineSession::LineSession;

 private:
  void asked(uint64_t) noexcept override {
    const char text[kStepTextBytes] = {};
    for (int i = 0; i < 3; ++i) say({text, sizeof text});
  }
};
SessionMistake<AnswerTooLong> answer_too_long("answer_too_long");

}  // namespace
}  // namespace bedplate
