// Adds a method of the control socket twice.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class MethodAddedTwice final : public Mistake {
 public:
  MethodAddedTwice() noexcept : Mistake("method_added_twice") {}
  void methods(ControlMethods& methods) override {
    for (int i = 0; i < 2; ++i) {
      methods.add(
          {.name = "flush", .help = "Forgets all items."}, [](void*, ControlCall&) noexcept {},
          nullptr);
    }
  }
} method_added_twice;

}  // namespace
}  // namespace bedplate
