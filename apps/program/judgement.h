// A configuration held against this machine: what `check` prints, and `doctor --for` judges by.
//
// Tested by tests/system/command_line_test.py.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"

namespace bedplate {

struct Judgement {
  // Of the file's own problems, all; else all that this machine lacks. Empty: it would boot.
  std::vector<Error> problems;
  std::optional<Configuration> configuration;  // nothing: the file has problems
  std::optional<AppliancePlan> plan;           // nothing: there is none
};

// Reads the file at `path`, plans, and looks for all that boot would: it opens what boot opens, and
// closes it again. It takes the appliance's name meanwhile, so a running one is a problem.
// Requires: `services` as load_configuration() does.
Judgement judge(const char* path, std::span<Service* const> services);

// Looks for what the machine lacks, anew. Requires: judged->plan is there.
void judge_machine(Judgement* judged);

}  // namespace bedplate
