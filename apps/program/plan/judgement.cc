#include "apps/program/plan/judgement.h"

#include <utility>

#include "alloc/interception.h"
#include "apps/boot/loaded_configuration.h"
#include "apps/boot/needed_calls.h"
#include "apps/boot/openings.h"
#include "apps/boot/peers.h"
#include "apps/boot/preflight.h"
#include "apps/counters/counters_file.h"
#include "platform/assert.h"
#include "platform/name_lock.h"

namespace bedplate {

void judge_machine(Judgement* judged) {
  BP_ASSERT(judged->configuration && judged->plan);
  const Configuration& configuration = *judged->configuration;
  const AppliancePlan& plan = *judged->plan;
  std::vector<Error>& problems = judged->problems;
  if (auto agreed = check_heap_expectation(configuration.alloc.expect, interception_decision());
      !agreed.ok()) {
    problems = {agreed.error()};
    return;
  }
  if (auto may = check_calls(configuration, plan); !may.ok()) {
    problems = {may.error()};  // all other problems would follow from this one
    return;
  }
  problems = preflight(configuration, plan);
  // Locks the name meanwhile, so that no appliance starts under it.
  NameLock name_lock;
  const ApplianceSettings& settings = configuration.appliance;
  if (auto taken = name_lock.take(settings.runtime_directory, settings.name); !taken.ok()) {
    problems.push_back(taken.error());
  } else if (auto checked = check_counters_file(name_lock, plan.counters(), plan.traces);
             !checked.ok()) {
    problems.push_back(checked.error());
  }
  if (!name_lock.is_nobody_elses()) return;
  const auto opened = open_all(configuration, plan, OpeningPurpose::kCheck, &problems);
  make_peers()->open(configuration, plan, &problems);
}

Judgement judge(const char* path, std::span<Service* const> services) {
  Judgement judged;
  judged.configuration = load_configuration(path, services, &judged.problems);
  BP_ASSERT(judged.configuration || !judged.problems.empty());
  if (!judged.configuration) return judged;
  auto planned = plan_appliance(*judged.configuration);
  if (!planned.ok()) {
    judged.problems = {planned.error()};
    return judged;
  }
  judged.plan = planned.take();
  judge_machine(&judged);
  return judged;
}

}  // namespace bedplate
