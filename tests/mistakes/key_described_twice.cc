// Describes a key of its table twice.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class KeyDescribedTwice final : public Mistake {
 public:
  KeyDescribedTwice() noexcept : Mistake("key_described_twice") {}
  void describe(ConfigurationTable& table) override {
    table.size("bytes", &bytes_, kMiB, kGiB).help("How much it keeps.");
    table.size("bytes", &bytes_, kMiB, kGiB).help("How much it keeps.");
  }

 private:
  uint64_t bytes_ = kMiB;
} key_described_twice;

}  // namespace
}  // namespace bedplate
