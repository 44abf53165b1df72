// `counters`: the reference of counters, made from their descriptions.
#include <cstdio>
#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/loaded_configuration.h"
#include "apps/boot/runtime_counters.h"
#include "apps/program/commands.h"
#include "apps/program/json_output.h"

namespace bedplate {
namespace {

// Without a configuration, the runtime's counters; with one, its services' counters.
Result<std::vector<CounterSet>> counters_of(const Arguments& arguments,
                                            std::vector<Error>* problems) {
  if (arguments.operands.empty()) return all_runtime_counters();
  const auto configuration =
      load_configuration(arguments.operands[0].c_str(), arguments.services, problems);
  if (!configuration) return std::vector<CounterSet>();
  auto plan = plan_appliance(*configuration);
  if (!plan.ok()) return plan.error();
  std::vector<CounterSet> sets;
  for (ServiceNeeds& service : plan.value().services) {
    for (CounterSet& set : service.counters) sets.push_back(std::move(set));
  }
  return sets;
}

// "shard.SHARD.iterations", "cache.hits": the counter's path in `stats --json`.
std::string path_of(const CounterSet& set, const CounterDescription& counter) {
  std::string path = set.owner;
  const auto add = [&path](const std::string& part) { path += (path.empty() ? "" : ".") + part; };
  if (set.owner.empty() || !set.instance.empty()) add(set.name);
  if (!set.instance.empty()) add(set.instance);
  add(counter.name);
  return path;
}

JsonValue to_json(const std::vector<CounterSet>& sets) {
  JsonValue json = JsonValue::array();
  for (const CounterSet& set : sets) {
    for (const CounterDescription& counter : set.counters) {
      JsonValue told = {{"counter", path_of(set, counter)},
                        {"kind", to_text(counter.kind)},
                        {"unit", counter.unit},
                        {"help", counter.help}};
      if (!counter.alert.says.empty()) told["sign"] = counter.alert.says;
      if (!counter.alert.why_none.empty()) told["no_sign"] = counter.alert.why_none;
      if (!counter.column.empty()) told["column"] = counter.column;
      json.push_back(std::move(told));
    }
  }
  return json;
}

void print_rows(const std::vector<CounterSet>& sets, const char* format) {
  for (const CounterSet& set : sets) {
    for (const CounterDescription& counter : set.counters) {
      std::printf(format, path_of(set, counter).c_str(), to_text(counter.kind),
                  counter.unit.c_str(), counter.help.c_str());
    }
  }
}

}  // namespace

int counters_command(const Arguments& arguments) {
  std::vector<Error> problems;
  auto sets = counters_of(arguments, &problems);
  if (!problems.empty()) return fail(problems);
  if (!sets.ok()) return fail(sets.error());
  if (arguments.has("--json")) {
    print_json(to_json(sets.value()));
  } else if (arguments.has("--markdown")) {
    print_rows(sets.value(), "| `%s` | %s | %s | %s |\n");
  } else {
    print_rows(sets.value(), "%s\n  %s, %s\n  %s\n");
  }
  return kExitGood;
}

}  // namespace bedplate
