// Tested by tests/system/command_line_test.py.
#include <cstdio>
#include <string>

#include "apps/boot/counters_reader.h"
#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "apps/program/signs.h"
#include "apps/program/stats_json.h"
#include "apps/program/stats_text.h"
#include "apps/program/watch_stats.h"
#include "pinned_pool/audit.h"

namespace bedplate {
namespace {

// The pool map as the file has it, by the names of its counters; without segments, where the file
// says too little of them.
PoolMap map_of(const std::vector<SeenSet>& sets) {
  PoolMap map;
  for (const SeenSet& set : sets) {
    if (!set.owner.empty() || set.name != "segment") continue;
    const auto address = set.read("address");
    const auto bytes = set.read("bytes");
    const auto page_bytes = set.read("page_bytes");
    const auto device = set.read("device");
    const auto inode = set.read("inode");
    if (!address || !bytes || !page_bytes || !device || !inode ||
        map.segment_count == kSegmentCountMax) {
      return {};
    }
    PoolMapSegment& segment = map.segments[map.segment_count++];
    segment.owner = set.instance;
    segment.address = *address;
    segment.bytes = *bytes;
    segment.page_bytes = *page_bytes;
    segment.device = *device;
    segment.inode = *inode;
    segment.is_locked = set.read("locked").value_or(0);
    segment.is_writable = set.read("writable").value_or(1);
    segment.has_write_seal = set.read("write_seal").value_or(0);
  }
  map.is_sealed = 1;
  return map;
}

std::string audit_text(const CountersReader& reader, const std::vector<SeenSet>& sets) {
  if (!reader.is_running()) return "the appliance is not running: it crashed or was killed";
  const PoolMap map = map_of(sets);
  if (map.segment_count == 0) return "the file does not say enough of the pool's segments";
  auto report = audit_maps(map, reader.pid());
  if (report.ok()) return report.value().text;
  return std::string(report.error().doing) + ": " + report.error().answer;
}

}  // namespace

Result<CountersReader> open_counters(const Arguments& arguments) {
  if (arguments.has("--from")) return CountersReader::open_file(arguments.value("--from"));
  return CountersReader::open(arguments.value("--directory", "/run/bedplate"),
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
  const std::string audit = audit_text(reader, sets);
  const std::string& name = reader.appliance();
  if (arguments.has("--json")) {
    Json json = {
        {"name", name}, {"pid", reader.pid()}, {"running", reader.is_running()}, {"audit", audit}};
    json["signs"] = signs_json(snapshot.value());
    json.update(sets_json(sets, arguments.has("--describe")));
    print_json(json);
    return kExitGood;
  }
  std::printf("%s: pid %d, %s\n  %-26s %s\n", name.c_str(), reader.pid(),
              reader.is_running() ? "running" : "NOT running: its last counters", "audit",
              audit.c_str());
  print_sets(sets);
  return kExitGood;
}

}  // namespace bedplate
