// Destroys a coroutine that waits, to cancel it.
#include <optional>

#include "tests/mistakes/coroutine_mistake.h"

namespace bedplate {
namespace {

class CoroutineDestroyed final : public CoroutineMistake {
 public:
  CoroutineDestroyed() noexcept : CoroutineMistake("coroutine_destroyed") {}

 private:
  Coroutine<> load() noexcept {
    CoroutineEvent never(loop());
    co_await never;
  }
  Coroutine<> run() noexcept override {
    Coroutine<>& loading = loading_.emplace(load());
    co_await loading;
  }
  void begun() noexcept override { loading_.reset(); }

  std::optional<Coroutine<>> loading_;
} coroutine_destroyed;

}  // namespace
}  // namespace bedplate
