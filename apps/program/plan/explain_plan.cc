// `bedplate plan --explain`: prints the key findings (key_findings.h) of a run's counters and
// configuration.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "apps/counters/counters_reader.h"
#include "apps/program/commands.h"
#include "apps/program/counters/counter_text.h"
#include "apps/program/json_output.h"
#include "apps/program/plan/key_findings.h"
#include "apps/program/plan/part_homes.h"
#include "platform/assert.h"
#include "platform/product.h"
#include "platform/units.h"

namespace bedplate {
namespace {

JsonValue number_json(const std::optional<uint64_t>& number) {
  return number ? JsonValue(*number) : JsonValue();
}

JsonValue to_json(const CountersReader& reader, const KeyFindings& findings,
                  const std::vector<PartHome>& homes) {
  JsonValue keys = JsonValue::array();
  for (const KeyFinding& one : findings.found) {
    keys.push_back({{"key", one.key},
                    {"unit", one.unit},
                    {"value", one.value},
                    {"peak", number_json(one.peak)},
                    {"refused", one.refused},
                    {"proposed", number_json(one.proposed)},
                    {"saved_bytes", one.saved_bytes},
                    {"risk", one.risk},
                    {"obstacle", one.obstacle}});
  }
  JsonValue unknown = JsonValue::array();
  for (const std::string& key : findings.unknown) unknown.push_back(key);
  JsonValue json = {{"name", reader.appliance()},
                    {"running", reader.is_running()},
                    {"keys", std::move(keys)},
                    {"unknown", std::move(unknown)}};
  if (!homes.empty()) json["homes"] = homes_json(homes);
  return json;
}

std::string saved_text(int64_t bytes) {
  if (bytes == 0) return "0";
  const std::string amount = format_bytes(static_cast<uint64_t>(bytes < 0 ? -bytes : bytes)).text;
  return (bytes < 0 ? "-" : "") + amount;
}

// Prints all values of a key in one form.
std::string amount_text(const std::optional<uint64_t>& amount, const std::string& unit) {
  return amount ? value_text(*amount, unit, false) : "-";
}

void print_finding(const KeyFinding& one, int width) {
  std::printf("%-*s %10s %10s %10s %10s\n", width, one.key.c_str(),
              amount_text(one.value, one.unit).c_str(), amount_text(one.peak, one.unit).c_str(),
              amount_text(one.proposed, one.unit).c_str(),
              one.proposed ? saved_text(one.saved_bytes).c_str() : "-");
  if (one.refused > 0) {
    std::printf("  it was too small: %" PRIu64 " refused or lost\n", one.refused);
  }
  if (one.proposed && *one.proposed < one.value && !one.risk.empty()) {
    std::printf("  risk: %s\n", one.risk.c_str());
  }
  if (!one.obstacle.empty()) std::printf("  stays: %s\n", one.obstacle.c_str());
}

void print_table(const CountersReader& reader, const KeyFindings& findings,
                 const std::vector<PartHome>& homes) {
  std::printf(
      "%s: pid %d, %s\n", reader.appliance().c_str(), reader.pid(),
      reader.is_running() ? "running, peaks since its start" : "NOT running: its last peaks");
  size_t width = 32;
  for (const KeyFinding& one : findings.found) width = std::max(width, one.key.size());
  std::printf("%-*s %10s %10s %10s %10s\n", static_cast<int>(width), "key", "value", "peak",
              "proposed", "saves");
  for (const KeyFinding& one : findings.found) print_finding(one, static_cast<int>(width));
  std::printf("%s\n", kKeyMargin);
  print_homes(homes);
  if (findings.unknown.empty()) return;
  std::printf("unknown, since no counter measures them:\n");
  for (const std::string& key : findings.unknown) std::printf("  %s\n", key.c_str());
}

}  // namespace

int explain_plan(const Arguments& arguments) {
  BP_ASSERT(!arguments.operands.empty());
  LoadedConfiguration loaded;
  std::vector<Error> problems;
  if (!loaded.load(arguments.operands[0].c_str(), arguments.services, &problems)) {
    return fail(problems);
  }
  const ApplianceSettings& settings = loaded.configuration().appliance;
  auto opened = arguments.has("--from")
                    ? CountersReader::open_file(arguments.value("--from"))
                    : CountersReader::open(settings.runtime_directory, settings.name);
  if (!opened.ok()) {
    Error error = opened.error();
    if (!arguments.has("--from")) {
      error.set_cure("start the appliance (`%s run CONFIG`), or name the counters file of "
                     "another run with --from",
                     product().name);
    }
    return fail(error);
  }
  auto snapshot = opened.value().snapshot();
  if (!snapshot.ok()) return fail(snapshot.error());
  auto findings = find_keys(loaded, snapshot.value());
  if (!findings.ok()) return fail(findings.error());
  auto plan = plan_appliance(loaded.configuration());
  if (!plan.ok()) return fail(plan.error());
  const std::vector<PartHome> homes = homes_of(plan.value());
  if (arguments.has("--json")) {
    print_json(to_json(opened.value(), findings.value(), homes));
  } else {
    print_table(opened.value(), findings.value(), homes);
  }
  return kExitGood;
}

}  // namespace bedplate
