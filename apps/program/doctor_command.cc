// doctor: what this machine offers to Bedplate, one line each, and what is lost without it. What
// takes more than a look into /proc and /sys (machine_findings.h) is probed here.
//
// Tested by tests/system/command_line_test.py.
#include <cstdio>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "alloc/interception.h"
#include "alloc/support_level.h"
#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "apps/program/machine_findings.h"
#include "apps/boot/peers.h"
#include "apps/boot/ports_part.h"
#include "apps/boot/preflight.h"
#include "pinned_pool/no_way_back.h"
#include "platform/cpu.h"
#include "platform/hugepage.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Good, or a warning with its cure.
Finding judged(const char* name, bool is_good, const std::string& value, const std::string& cure) {
  return {name, is_good ? Verdict::kGood : Verdict::kWarning, value, is_good ? "" : cure};
}

Finding cores() {
  return {"cores", Verdict::kGood, std::to_string(usable_cpu_count()) + " for this process", ""};
}

// The nodes, where there is more than one.
std::vector<int> nodes() {
  const NodeSet there = memory_nodes();
  std::vector<int> list;
  for (size_t node = 0; there.count() > 1 && node < there.size(); ++node) {
    if (there[node]) list.push_back(static_cast<int>(node));
  }
  return list;
}

Finding hugepages(PageSize page, const char* name) {
  const HugepageCounts counts = hugepage_counts(page);
  if (!counts.supported) return judged(name, false, "not supported", "choose other [pool] pages");
  const auto text_of = [](const HugepageCounts& some) {
    return std::to_string(some.available_count) + " free of " + std::to_string(some.total_count);
  };
  std::string value = text_of(counts);
  for (const int node : nodes()) {
    value +=
        std::string(", ") + format_node(node).text + ": " + text_of(hugepage_counts(page, node));
  }
  return judged(name, counts.available_count > 0, value,
                std::string("reserve some: echo COUNT > ") + hugepage_count_file(page).path);
}

Finding locked_memory() {
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_max == RLIM_INFINITY;
  const bool root = geteuid() == 0;
  std::string value = unlimited ? "unlimited" : format_bytes(limit.rlim_max).text;
  if (root) value += ", and root is not bound by it";
  return judged("locked memory", unlimited || root, value,
                "run as root, or raise the limit: ulimit -l unlimited");
}

Finding io_uring_support() {
  const auto probed = probe_io_uring();
  if (probed.ok()) return judged("io_uring", true, "works", "");
  return judged("io_uring", false, probed.error().answer, probed.error().cure);
}

Finding verbs_devices() {
  const PeersPart* part = peers_part();
  if (part == nullptr) {
    return judged("verbs", false, "not linked in", "link bedplate-verbs, too, or do without peers");
  }
  const PortsReport report = part->look_at_ports();
  return judged("verbs", report.has_usable, report.text, report.advice);
}

Finding ports() {
  const PortsPart* part = ports_part();
  if (part == nullptr) {
    return judged("ports", false, "not linked in", "link bedplate-dpdk, too, or do without ports");
  }
  const char* why = part->why_impossible();
  return judged("ports", why == nullptr,
                (why == nullptr ? "" : why + std::string("; ")) + "drivers: " + part->drivers(),
                "take a processor with SSE 4.2");
}

Finding sealing() {
  const bool works = (available_stoppers() & kMappingSealStops) != 0;
  return judged("mseal", works, works ? "works" : "not in this kernel",
                "it came with Linux 6.10; below, [pool] enforce = \"seccomp\" does its work");
}

// What could still take memory from under a registration here, with the default configuration.
Finding ways_back() {
  uint32_t stoppers = available_stoppers();
  if (probe_io_uring().ok()) stoppers |= kPinStops;
  char open[512], in_libc[512];
  const uint32_t count = list_ways(stoppers, WayState::kOpen, open, sizeof open) +
                         list_ways(stoppers, WayState::kStoppedInLibc, in_libc, sizeof in_libc);
  std::string value = count == 0 ? "none" : open;
  if (in_libc[0] != '\0') {
    value += (value.empty() ? "" : "; ") + std::string("as raw system calls: ") + in_libc;
  }
  return judged("ways back", count == 0, value,
                "[pool] enforce = \"seccomp\" stops those that are calls (docs/pool.md)");
}

Finding allocation() {
  char sentence[256];
  explain_decision(interception_decision(), sentence, sizeof sentence);
  return judged("malloc", malloc_is_intercepted(), sentence,
                "its blocks have no keys; docs/allocator.md says how to decide for the pool");
}

Finding support() {
  const SupportProof proof = prove_support_level();
  const bool is_proved = proof.way == nullptr;
  return judged("support level", is_proved, support_level_text(proof.level),
                is_proved ? "" : std::string(proof.way) + ": " + proof.failure);
}

std::vector<Finding> look_at_machine() {
  std::vector<Finding> findings = machine_findings();
  const std::vector<Finding> probed = {cores(),
                                       hugepages(PageSize::k2MiB, "hugepages of 2 MiB"),
                                       hugepages(PageSize::k1GiB, "hugepages of 1 GiB"),
                                       locked_memory(),
                                       io_uring_support(),
                                       verbs_devices(),
                                       ports(),
                                       sealing(),
                                       ways_back(),
                                       allocation(),
                                       support()};
  findings.insert(findings.end(), probed.begin(), probed.end());
  return findings;
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  const std::vector<Finding> findings = look_at_machine();
  Json json = Json::array();
  int code = kExitGood;
  for (const Finding& finding : findings) {
    const char* verdict = verdict_text(finding.verdict);
    if (finding.verdict == Verdict::kFault) code = kExitFailure;
    json.push_back({{"name", finding.name},
                    {"verdict", verdict},
                    {"value", finding.value},
                    {"cure", finding.cure}});
    if (arguments.has("--json")) continue;
    std::printf("%-7s %-20s %s%s%s\n", verdict, finding.name.c_str(), finding.value.c_str(),
                finding.cure.empty() ? "" : "; ", finding.cure.c_str());
  }
  if (arguments.has("--json")) print_json(json);
  return code;
}

}  // namespace bedplate
