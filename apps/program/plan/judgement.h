// A check of a configuration against this machine, for `check` and `doctor --for`.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"

namespace bedplate {

struct Judgement {
  // All problems of the file itself. If the file has none: the planning error alone, or the failure
  // of [alloc] expect alone, or a forbidden system call alone, or everything that this machine
  // lacks. Empty: the appliance would boot.
  std::vector<Error> problems;
  std::optional<Configuration> configuration;  // nothing: the file has problems
  std::optional<AppliancePlan> plan;           // nothing: the file has problems, or planning failed
};

// Reads the file at `path`, plans, and checks all that boot checks: it opens boot's files and
// devices, and closes them again. It locks the appliance's name meanwhile, so a running appliance
// of this name is a problem, and its files are not opened. Requires: `services` as for
// load_configuration().
Judgement judge(const char* path, std::span<Service* const> services);

// Checks the machine again, and replaces judged->problems. Requires: judged->plan has a value.
void judge_machine(Judgement* judged);

}  // namespace bedplate
