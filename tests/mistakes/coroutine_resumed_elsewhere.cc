// Resumes a coroutine on another thread.
#include <optional>

#include "tests/mistakes/coroutine_mistake.h"

namespace bedplate {
namespace {

class CoroutineResumedElsewhere final : public CoroutineMistake {
 public:
  CoroutineResumedElsewhere() noexcept : CoroutineMistake("coroutine_resumed_elsewhere") {}

 private:
  Coroutine<> run() noexcept override {
    CoroutineEvent& done = done_.emplace(loop());
    co_await done;
  }
  void begun() noexcept override {
    elsewhere(loop(), [this] { done_->set(); });
  }

  std::optional<CoroutineEvent> done_;
} coroutine_resumed_elsewhere;

}  // namespace
}  // namespace bedplate
