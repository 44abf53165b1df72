// Plans memory for an owner without a name.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class OwnerWithoutName final : public Mistake {
 public:
  OwnerWithoutName() noexcept : Mistake("owner_without_name") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.segment("", {{"items", 64 * kKiB}}, plan.placement(0));
    return {};
  }
} owner_without_name;

}  // namespace
}  // namespace bedplate
