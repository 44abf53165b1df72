// Blocks the main thread in tick().
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class BlockingTick final : public Mistake {
 public:
  BlockingTick() noexcept : Mistake("blocking_tick") {}
  void tick() noexcept override {
    if (has_blocked_) return;
    has_blocked_ = true;
    end();  // takes effect after this tick
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }

 private:
  bool has_blocked_ = false;
} blocking_tick;

}  // namespace
}  // namespace bedplate
