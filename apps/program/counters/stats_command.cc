#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "apps/counters/counters_reader.h"
#include "apps/counters/stats_json.h"
#include "apps/program/commands.h"
#include "apps/program/counters/stats_text.h"
#include "apps/program/counters/watch_stats.h"

namespace bedplate {
namespace {

void print_crash(const SeenCrash& crash) {
  std::printf("crash at %s\n", crash.time().c_str());
  for (const std::string& line : crash.lines) std::printf("  %s\n", line.c_str());
}

void print_stats(const CountersView& counters, const AuditReport& audit,
                 const StatsJson::Options& options) {
  std::vector<uint32_t> order(counters.set_count() + 1);  // never full, so one pass finds all
  StatsJson json(counters, audit, options, order);
  std::vector<char> piece(StatsJson::kPieceBytesMin);
  while (const size_t bytes = json.write(piece)) std::fwrite(piece.data(), 1, bytes, stdout);
}

}  // namespace

Result<CountersReader> open_counters(const Arguments& arguments) {
  if (arguments.has("--from")) return CountersReader::open_file(arguments.value("--from"));
  return CountersReader::open(arguments.directory(),
                              arguments.operands.empty() ? "" : arguments.operands[0]);
}

int stats_command(const Arguments& arguments) {
  auto opened = open_counters(arguments);
  if (!opened.ok()) return fail(opened.error());
  const CountersReader& reader = opened.value();
  if (arguments.has("--watch")) return watch_stats(reader, arguments.has("--json"));
  auto snapshot = reader.snapshot();
  if (!snapshot.ok()) return fail(snapshot.error());
  const std::vector<SeenSet>& sets = snapshot.value().sets();
  const CountersView counters = snapshot.value().view();
  const AuditReport audit = audit_of(counters, reader.is_running());
  const std::string& name = reader.appliance();
  const std::optional<SeenCrash> crash = reader.crash();
  if (arguments.has("--json")) {
    print_stats(counters, audit,
                {.is_running = reader.is_running(),
                 .crash = crash ? &*crash : nullptr,
                 .is_described = arguments.has("--describe"),
                 .layout = JsonLayout::kLines});
    return kExitGood;
  }
  std::printf("%s: pid %d, %s\n  %-26s %s\n", name.c_str(), reader.pid(),
              reader.is_running() ? "running" : "NOT running: its last counters", "audit",
              audit.text);
  if (crash) print_crash(*crash);
  print_sets(sets);
  return kExitGood;
}

}  // namespace bedplate
