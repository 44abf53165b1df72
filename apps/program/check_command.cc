// Tested by tests/system/command_line_test.py.
#include <algorithm>
#include <cstdio>

#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "apps/boot/appliance_plan.h"
#include "apps/boot/counters_file.h"
#include "apps/boot/listeners.h"
#include "apps/boot/name_lock.h"
#include "apps/boot/peers.h"
#include "apps/boot/preflight.h"

namespace bedplate {
namespace {

// The problems of a configuration: all of its own, or else all that this machine lacks for it.
std::vector<Error> find_problems(const char* path, std::span<Service* const> services) {
  std::vector<Error> problems;
  const auto configuration = load_configuration(path, services, &problems);
  if (!configuration) return problems;
  auto plan = plan_appliance(*configuration);
  if (!plan.ok()) return {plan.error()};
  if (auto agreed = check_heap_expectation(configuration->alloc.expect, interception_decision());
      !agreed.ok()) {
    return {agreed.error()};
  }
  problems = preflight(*configuration, plan.value());
  // Held meanwhile, so that no start of the name and this get in each other's way.
  NameLock name_lock;
  const ApplianceSettings& settings = configuration->appliance;
  if (auto taken = name_lock.take(settings.runtime_directory, settings.name); !taken.ok()) {
    problems.push_back(taken.error());
  } else if (auto checked = check_counters_file(name_lock, plan.value().counters());
             !checked.ok()) {
    problems.push_back(checked.error());
  }
  if (!name_lock.is_nobody_elses()) return problems;
  const auto listeners = open_listeners(plan.value().services, false, &problems);
  const auto files = open_files(plan.value().services, false, &problems);
  make_peers()->open(*configuration, plan.value(), &problems);
  return problems;
}

Json to_json(const std::vector<Error>& problems) {
  Json json;
  json["ok"] = problems.empty();
  json["problems"] = Json::array();
  for (const Error& problem : problems) {
    json["problems"].push_back(
        {{"doing", problem.doing}, {"answer", problem.answer}, {"cure", problem.cure}});
  }
  return json;
}

}  // namespace

int check_command(const Arguments& arguments) {
  const std::vector<Error> problems =
      find_problems(arguments.operands[0].c_str(), arguments.services);
  if (arguments.has("--json")) {
    print_json(to_json(problems));
    int code = kExitGood;
    for (const Error& problem : problems) code = std::max(code, static_cast<int>(problem.kind));
    return code;
  }
  if (problems.empty()) {
    std::printf("bedplate: %s: good; this machine has what it takes\n",
                arguments.operands[0].c_str());
  }
  return fail(problems);
}

}  // namespace bedplate
