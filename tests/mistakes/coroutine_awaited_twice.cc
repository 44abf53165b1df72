// Awaits a coroutine once more, for the result that it had.
#include "tests/mistakes/coroutine_mistake.h"

namespace bedplate {
namespace {

class CoroutineAwaitedTwice final : public CoroutineMistake {
 public:
  CoroutineAwaitedTwice() noexcept : CoroutineMistake("coroutine_awaited_twice") {}

 private:
  static Coroutine<int> load() noexcept { co_return 1; }
  Coroutine<> run() noexcept override {
    Coroutine<int> loaded = load();
    (void)co_await loaded;
    (void)co_await loaded;
  }
} coroutine_awaited_twice;

}  // namespace
}  // namespace bedplate
