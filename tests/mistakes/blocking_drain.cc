// Blocks the main thread in request_drain().
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class BlockingDrain final : public Mistake {
 public:
  BlockingDrain() noexcept : Mistake("blocking_drain") {}
  void start(uint32_t) noexcept override { end(); }
  void request_drain() noexcept override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }
} blocking_drain;

}  // namespace
}  // namespace bedplate
