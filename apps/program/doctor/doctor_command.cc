// doctor: prints a line for each feature of this machine that Bedplate uses, with the loss without
// it, and the alerts of the appliances that run on it. machine_findings.h reads /proc and /sys; the
// probes that need more are here.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "alloc/interception.h"
#include "alloc/support_level.h"
#include "apps/boot/peers.h"
#include "apps/boot/ports_part.h"
#include "apps/boot/preflight.h"
#include "apps/program/commands.h"
#include "apps/program/counters/alerts.h"
#include "apps/program/doctor/machine_findings.h"
#include "apps/program/doctor/mend.h"
#include "apps/program/json_output.h"
#include "apps/program/plan/judgement.h"
#include "pinned_pool/no_way_back.h"
#include "platform/assert.h"
#include "platform/cpu.h"
#include "platform/file.h"
#include "platform/hugepage.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Good, or a warning with its cure.
Finding warn_unless(const char* name, bool is_good, const std::string& value,
                    const std::string& cure) {
  return {name, is_good ? Verdict::kGood : Verdict::kWarning, value, is_good ? "" : cure};
}

Finding cores() {
  return {"cores", Verdict::kGood, std::to_string(usable_cpu_count()) + " for this process", ""};
}

// The memory nodes, if there is more than one.
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
  if (!counts.supported)
    return warn_unless(name, false, "not supported", "choose other [pool] pages");
  const auto text_of = [](const HugepageCounts& some) {
    return std::to_string(some.available_count) + " free of " + std::to_string(some.total_count);
  };
  std::string value = text_of(counts);
  for (const int node : nodes()) {
    value +=
        std::string(", ") + format_node(node).text + ": " + text_of(hugepage_counts(page, node));
  }
  return warn_unless(name, counts.available_count > 0, value,
                     std::string("reserve some: echo COUNT > ") + hugepage_count_file(page).path);
}

Finding locked_memory() {
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_max == RLIM_INFINITY;
  const bool root = geteuid() == 0;
  std::string value = unlimited ? "unlimited" : format_bytes(limit.rlim_max).text;
  if (root) value += ", which does not limit root";
  return warn_unless("locked memory", unlimited || root, value,
                     "run as root, or raise the limit: ulimit -l unlimited");
}

Finding io_uring_support() {
  const auto probed = probe_io_uring();
  if (probed.ok()) return warn_unless("io_uring", true, "works", "");
  return warn_unless("io_uring", false, probed.error().answer, probed.error().cure);
}

Finding verbs_devices() {
  const PeersPart* part = peers_part();
  if (part == nullptr) {
    return warn_unless("verbs", false, "not linked in",
                       "link bedplate-verbs, too, or do without peers");
  }
  const PortsReport report = part->look_at_ports();
  return warn_unless("verbs", report.has_usable, report.text, report.advice);
}

Finding ports() {
  const PortsPart* part = ports_part();
  if (part == nullptr) {
    return warn_unless("ports", false, "not linked in",
                       "link bedplate-dpdk, too, or do without ports");
  }
  const char* why = part->why_impossible();
  return warn_unless(
      "ports", why == nullptr,
      (why == nullptr ? "" : why + std::string("; ")) + "drivers: " + part->drivers(),
      "use a processor with SSE 4.2");
}

Finding sealing() {
  const bool works = (available_stoppers() & kMappingSealStops) != 0;
  return warn_unless("mseal", works, works ? "works" : "not in this kernel",
                     "it needs Linux 6.10; on older kernels set [pool] enforce = \"seccomp\"");
}

// The ways back, by which memory could still be taken from under a registration here, under the
// configuration's settings or the defaults.
Finding ways_back(const Judgement* judged) {
  uint32_t stoppers = available_stoppers();
  const Configuration configuration = judged == nullptr ? Configuration() : *judged->configuration;
  const bool may_ring = configuration.event_loop.sockets != SocketBackendChoice::kEpoll;
  if (may_ring && probe_io_uring().ok()) stoppers |= kPinStops;
  if (configuration.pool.enforce == Enforcement::kSeccomp) stoppers |= kSeccompStops;
  char open[512], in_libc[512];
  const uint32_t count =
      list_ways_back(stoppers, WayBackState::kOpen, open, sizeof open) +
      list_ways_back(stoppers, WayBackState::kStoppedInLibc, in_libc, sizeof in_libc);
  std::string value = count == 0 ? "none" : open;
  if (in_libc[0] != '\0') {
    value += (value.empty() ? "" : "; ") + std::string("as raw system calls: ") + in_libc;
  }
  return warn_unless("ways back", count == 0, value,
                     "[pool] enforce = \"seccomp\" stops those that are system calls "
                     "(docs/pool.md)");
}

Finding allocation() {
  char sentence[256];
  explain_decision(interception_decision(), sentence, sizeof sentence);
  return warn_unless("malloc", malloc_is_intercepted(), sentence,
                     "its blocks have no keys; docs/allocator.md says how to choose the pool");
}

Finding support() {
  const SupportProof proof = prove_support_level();
  const bool is_proved = proof.failed_allocator == nullptr;
  return warn_unless("support level", is_proved, to_text(proof.level),
                     is_proved ? "" : std::string(proof.failed_allocator) + ": " + proof.failure);
}

void append(std::vector<Finding>* findings, const std::vector<Finding>& more) {
  findings->insert(findings->end(), more.begin(), more.end());
}

// Findings about features that a configuration may need.
std::vector<Finding> offers() {
  std::vector<Finding> findings = {hugepages(PageSize::k2MiB, "hugepages of 2 MiB"),
                                   hugepages(PageSize::k1GiB, "hugepages of 1 GiB"),
                                   locked_memory(),
                                   io_uring_support(),
                                   verbs_devices(),
                                   ports()};
  append(&findings, device_findings());
  return findings;
}

// Findings about everything that this configuration needs and this machine lacks.
std::vector<Finding> needs(const std::string& path, const Judgement& judged) {
  if (judged.problems.empty()) {
    return {{path, Verdict::kGood, "this machine has what it takes", ""}};
  }
  std::vector<Finding> findings;
  for (const Error& problem : judged.problems) {
    findings.push_back({problem.doing, Verdict::kFault, problem.answer, problem.cure});
  }
  return findings;
}

std::vector<Finding> look(const std::string& path, const Judgement* judged,
                          const std::string& directory) {
  BP_ASSERT(judged == nullptr || judged->configuration);
  std::set<int> cpus;
  if (judged != nullptr) {
    for (const ShardSettings& shard : judged->configuration->shards) cpus.insert(shard.cpu);
  }
  std::vector<Finding> findings = machine_findings(cpus);
  append(&findings, {cores(), sealing(), ways_back(judged), allocation(), support()});
  append(&findings, judged == nullptr ? offers() : needs(path, *judged));
  append(&findings, appliance_findings(directory));
  return findings;
}

int print(const std::vector<Finding>& findings, bool as_json) {
  JsonValue json = JsonValue::array();
  int code = kExitGood;
  for (const Finding& finding : findings) {
    const char* verdict = to_text(finding.verdict);
    if (finding.verdict == Verdict::kFault) code = kExitFailure;
    json.push_back({{"name", finding.name},
                    {"verdict", verdict},
                    {"value", finding.value},
                    {"cure", finding.cure}});
    if (as_json) continue;
    std::printf("%-7s %-20s %s%s%s\n", verdict, finding.name.c_str(), finding.value.c_str(),
                finding.cure.empty() ? "" : "; ", finding.cure.c_str());
  }
  if (as_json) print_json(json);
  return code;
}

// The sysctl line for a number of hugepages. Empty: sysctl has no setting for a single node, or for
// a size other than the kernel's default.
std::string lasting_count(const HugepageNeed& need, uint64_t total) {
  const auto default_kib = read_number_field("/proc/meminfo", "Hugepagesize");
  const bool is_default = default_kib && *default_kib * kKiB == page_bytes(need.page);
  if (!is_default || need.node != kAnyNode) return "";
  return "vm.nr_hugepages = " + std::to_string(total);
}

// Preflight's cures of missing hugepages, as settings; errors go to `failed`.
std::vector<Finding> missing_pages(const AppliancePlan& plan, std::vector<Error>* failed) {
  std::vector<Finding> findings;
  for (const HugepageNeed& need : hugepage_needs(plan)) {
    auto missing = missing_hugepages(need);
    const HugepageCounts counts = hugepage_counts(need.page, need.node);
    if (!missing.ok()) failed->push_back(missing.error());
    if (!missing.ok() || missing.value() == 0 || !counts.supported) continue;
    const uint64_t total = counts.total_count + missing.value();
    Finding finding = {"hugepages", Verdict::kFault, "", ""};
    const std::string lasting = lasting_count(need, total);
    finding.settings = {{hugepage_count_file(need.page, need.node).path, std::to_string(total),
                         lasting, need.page}};
    if (lasting.empty()) {
      finding.kernel_words = need.page == PageSize::k1GiB ? "hugepagesz=1G" : "hugepagesz=2M";
      finding.kernel_words += " hugepages=";
      if (need.node != kAnyNode) finding.kernel_words += std::to_string(need.node) + ":";
      finding.kernel_words += std::to_string(total);
    }
    findings.push_back(finding);
  }
  return findings;
}

bool ask(const std::string& question) {
  std::fprintf(stderr, "%s(y or n) ", question.c_str());
  char answer[16] = "";
  return std::fgets(answer, sizeof answer, stdin) != nullptr &&
         (answer[0] == 'y' || answer[0] == 'Y');
}

// Returns the exit code. Questions and results go to standard error, because the findings go to
// standard output.
int fix(const std::string& path, const Judgement* judged, const std::string& directory, bool asks) {
  BP_ASSERT(judged == nullptr || judged->plan);
  std::vector<Error> failed;
  std::vector<Finding> findings = look(path, judged, directory);
  if (judged != nullptr) append(&findings, missing_pages(*judged->plan, &failed));
  const MendTalk talk = {
      [asks](const std::string& question) { return !asks || ask(question); },
      [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }};
  for (const Error& error : mend(findings, talk)) failed.push_back(error);
  return fail(failed);
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  const std::string path = arguments.value("--for");
  std::optional<Judgement> judged;
  if (arguments.has("--for")) {
    judged = judge(path.c_str(), arguments.services);
    // A file that has problems has no plan, so the machine cannot be checked for it.
    if (!judged->plan) return fail(judged->problems);
  }
  const std::string directory = arguments.directory();
  int code = kExitGood;
  if (arguments.has("--fix")) {
    code = fix(path, judged ? &*judged : nullptr, directory, !arguments.has("--yes"));
    if (judged) judge_machine(&*judged);
  } else if (arguments.has("--yes")) {
    return usage_failure("--yes needs --fix", "", "doctor");
  }
  const std::vector<Finding> found = look(path, judged ? &*judged : nullptr, directory);
  return std::max(code, print(found, arguments.has("--json")));
}

}  // namespace bedplate
