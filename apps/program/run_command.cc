#include <cstdio>
#include <cstdlib>

#include "apps/boot/appliance.h"
#include "apps/boot/loaded_configuration.h"
#include "apps/boot/preflight.h"
#include "apps/program/commands.h"
#include "platform/assert.h"
#include "platform/product.h"

namespace bedplate {

int run_command(const Arguments& arguments) {
  BP_ASSERT(arguments.operands.size() == 1);
  std::vector<Error> problems;
  auto configuration =
      load_configuration(arguments.operands[0].c_str(), arguments.services, &problems);
  BP_ASSERT(configuration || !problems.empty());  // the exit code comes from a problem
  if (!configuration) return fail(problems);
  // Planned first, because a plan that does not fit is a configuration error.
  if (auto plan = plan_appliance(*configuration); !plan.ok()) return fail(plan.error());
  if (auto agreed = check_heap_expectation(configuration->alloc.expect, interception_decision());
      !agreed.ok()) {
    return fail(agreed.error());
  }
  Appliance appliance(std::move(*configuration));
  if (const auto code = appliance.boot()) return *code;
  std::printf("%s: ready\n", product().name);
  std::fflush(stdout);
  const int signal_number = appliance.serve_until_signal();
  if (appliance.has_left_operations()) {
    std::fflush(nullptr);
    std::_Exit(kExitFailure);
  }
  return signal_number != 0 ? kExitGood : kExitFailure;
}

}  // namespace bedplate
