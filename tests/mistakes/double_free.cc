// Frees a block twice.
#include <cstdlib>

#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class DoubleFree final : public Mistake {
 public:
  DoubleFree() noexcept : Mistake("double_free") {}
  void start(uint32_t) noexcept override {
    void* volatile kept = std::malloc(40);  // so the page of both stays
    void* volatile block = std::malloc(40);
    void* volatile again = block;
    std::free(block);
    std::free(again);
    std::free(kept);
  }
} double_free;

}  // namespace
}  // namespace bedplate
