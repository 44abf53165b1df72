// The program: runs the mistake of the first word.
#include "apps/c_interface/bedplate_service.h"
#include "platform/log.h"
#include "tests/mistakes/mistake.h"

using namespace bedplate;

extern "C" const bp_service loop_of_no_shard_in_c, unplanned_timer_in_c;

namespace {

// A service without a mistake, which plans one timer.
class Store final : public Service {
 public:
  const char* name() const noexcept override { return "store"; }
  Result<void> plan(ServicePlan& plan) override {
    plan.timers(0, 1);
    return {};
  }
};

constexpr struct {
  const char* mistake;
  const bp_service& service;
} kMistakesInC[] = {{"loop_of_no_shard_in_c", loop_of_no_shard_in_c},
                    {"unplanned_timer_in_c", unplanned_timer_in_c}};

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  set_log_level(LogLevel::kWarning);
  for (const auto& each : kMistakesInC) {
    if (std::strcmp(each.mistake, words[1]) == 0) {
      return bp_main(count - 1, words + 1, &each.service, 1);
    }
  }
  static Store store;
  Mistake* const mistake = Mistake::find(words[1]);
  return mistake == nullptr ? 2 : run_program(count - 1, words + 1, {mistake, &store});
}
