// Asks for the tenth shard, of one.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class LoopOfNoShard final : public Mistake {
 public:
  LoopOfNoShard() noexcept : Mistake("loop_of_no_shard") {}
  Result<void> create(ServiceContext& context) override {
    (void)context.loop(9);
    return {};
  }
} loop_of_no_shard;

}  // namespace
}  // namespace bedplate
