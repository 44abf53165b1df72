#include "apps/program/judgement.h"

#include <utility>

#include "alloc/interception.h"
#include "apps/boot/counters_file.h"
#include "apps/boot/listeners.h"
#include "apps/boot/name_lock.h"
#include "apps/boot/peers.h"
#include "apps/boot/preflight.h"

namespace bedplate {

Judgement judge(const char* path, std::span<Service* const> services) {
  Judgement judged;
  std::vector<Error>& problems = judged.problems;
  judged.configuration = load_configuration(path, services, &problems);
  if (!judged.configuration) return judged;
  const Configuration& configuration = *judged.configuration;
  auto planned = plan_appliance(configuration);
  if (!planned.ok()) {
    problems = {planned.error()};
    return judged;
  }
  judged.plan = planned.take();
  const AppliancePlan& plan = *judged.plan;
  if (auto agreed = check_heap_expectation(configuration.alloc.expect, interception_decision());
      !agreed.ok()) {
    problems = {agreed.error()};
    return judged;
  }
  problems = preflight(configuration, plan);
  // Held meanwhile, so that no start of the name and this get in each other's way.
  NameLock name_lock;
  const ApplianceSettings& settings = configuration.appliance;
  if (auto taken = name_lock.take(settings.runtime_directory, settings.name); !taken.ok()) {
    problems.push_back(taken.error());
  } else if (auto checked = check_counters_file(name_lock, plan.counters()); !checked.ok()) {
    problems.push_back(checked.error());
  }
  if (!name_lock.is_nobody_elses()) return judged;
  const auto listeners = open_listeners(plan.services, false, &problems);
  const auto files = open_files(plan.services, false, &problems);
  make_peers()->open(configuration, plan, &problems);
  return judged;
}

}  // namespace bedplate
