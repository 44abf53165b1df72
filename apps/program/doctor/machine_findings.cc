#include "apps/program/doctor/machine_findings.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>

#include <dirent.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/numa.h"
#include "platform/text.h"
#include "platform/text_words.h"
#include "platform/units.h"
#include "transport/vfio/pci_device.h"

namespace bedplate {
namespace {

constexpr char kCpus[] = "/sys/devices/system/cpu";
// The longest acceptable wake-up time of a sleep state: a core in a deeper state answers its first
// packet later.
constexpr uint64_t kWakeMicrosecondsMax = 10;
constexpr int kHugepageOrder = 9;  // a hugepage of 2 MiB is 2^9 pages

// The beginning of a file, without its newline; empty: the file is empty or missing.
std::string text_of(const std::string& path) {
  char text[4096];
  if (!read_text_file(path.c_str(), text, sizeof text)) return "";
  std::string found(text);
  found.resize(std::min(found.find('\n'), found.size()));
  return found;
}

// The names in a directory, sorted; none: it is empty or missing.
std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  DIR* opened = opendir(directory.c_str());
  if (opened == nullptr) return names;
  while (const dirent* entry = readdir(opened)) {
    if (entry->d_name[0] != '.') names.insert(entry->d_name);
  }
  closedir(opened);
  return names;
}

// The numbers in those `names` that are `prefix` and a number: 0 and 1 for cpu0, cpu1 and cpufreq.
std::set<int> numbers_in(const std::set<std::string>& names, std::string_view prefix) {
  std::set<int> numbers;
  for (const std::string_view name : names) {
    int number = 0;
    if (name.starts_with(prefix) && parse_number(name.substr(prefix.size()), &number)) {
      numbers.insert(number);
    }
  }
  return numbers;
}

// The numbers in the kernel's format of lists: "0-3,8".
std::string list_text(const std::set<int>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last != first) text += '-' + std::to_string(last);
  }
  return text;
}

// Parses the kernel's list of cores; lists of nodes have the same format.
std::set<int> numbers_of(const std::string& list) {
  std::set<int> numbers;
  const NodeSet listed = parse_nodes(list.c_str());
  for (size_t number = 0; number < listed.size(); ++number) {
    if (listed[number]) numbers.insert(static_cast<int>(number));
  }
  return numbers;
}

// The root of all files, and the cores in question.
struct View {
  std::string root;
  std::set<int> cpus;
};

View look_at(const std::set<int>& asked, const std::string& root) {
  return {root, asked.empty() ? numbers_in(names_in(root + kCpus), "cpu") : asked};
}

std::string directory_of(const std::string& root, int cpu) {
  return root + kCpus + "/cpu" + std::to_string(cpu);
}

Finding kernel(const std::string& root) {
  const std::string release = text_of(root + "/proc/sys/kernel/osrelease");
  int major = 0, minor = 0;
  const bool is_read = std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2;
  if (is_read && (major > 5 || (major == 5 && minor >= 14))) {
    return {"kernel", Verdict::kGood, release, ""};
  }
  return {"kernel", Verdict::kFault, is_read ? release : "/proc has no kernel release",
          is_read ? "use Linux 5.14 or newer, which can populate memory without touching it"
                  : "mount -t proc proc /proc"};
}

Finding threads_of_cores(const View& view) {
  std::set<std::string> siblings;
  for (const int cpu : view.cpus) {
    const std::string list =
        text_of(directory_of(view.root, cpu) + "/topology/thread_siblings_list");
    if (numbers_of(list).size() > 1) siblings.insert(list);
  }
  if (siblings.empty()) return {"threads of a core", Verdict::kGood, "one", ""};
  std::string text;
  for (const std::string& list : siblings) {
    if (!text.empty()) text += " and ";
    text += list;
  }
  return {"threads of a core", Verdict::kWarning, "these CPUs share a core: " + text,
          "a shard that polls slows what runs on the other: give each shard the `cpu` of a "
          "different core and leave the others idle, or start the kernel with nosmt"};
}

Finding governor(const View& view) {
  std::map<std::string, std::set<int>> by_name;
  for (const int cpu : view.cpus) {
    const std::string name = text_of(directory_of(view.root, cpu) + "/cpufreq/scaling_governor");
    if (!name.empty()) by_name[name].insert(cpu);
  }
  if (by_name.empty()) {
    return {"governor", Verdict::kGood, "the kernel does not set the clock frequency", ""};
  }
  std::string text;
  for (const auto& [name, cpus] : by_name) {
    add_word(&text, name + " (cpu " + list_text(cpus) + ")");
  }
  by_name.erase("performance");
  if (by_name.empty()) return {"governor", Verdict::kGood, text, ""};
  Finding finding = {"governor", Verdict::kWarning, text,
                     "for f in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo "
                     "performance > $f; done; lasts with cpufreq.default_governor=performance on "
                     "the kernel's command line"};
  for (const auto& [name, cpus] : by_name) {
    for (const int cpu : cpus) {
      finding.settings.push_back(
          {directory_of("", cpu) + "/cpufreq/scaling_governor", "performance", ""});
    }
  }
  finding.kernel_words = "cpufreq.default_governor=performance";
  return finding;
}

// Checks the deepest sleep state of the cores.
Finding sleep_states(const View& view) {
  std::string deepest;
  uint64_t latency = 0;
  std::vector<Setting> settings;
  for (const int cpu : view.cpus) {
    const std::string idle = directory_of("", cpu) + "/cpuidle";
    for (const int state : numbers_in(names_in(view.root + idle), "state")) {
      const std::string disable = idle + "/state" + std::to_string(state) + "/disable";
      const std::string directory = view.root + idle + "/state" + std::to_string(state);
      if (text_of(directory + "/disable") == "1") continue;
      const uint64_t takes = read_number_file((directory + "/latency").c_str()).value_or(0);
      if (takes > kWakeMicrosecondsMax) settings.push_back({disable, "1", ""});
      if (takes < latency || (takes == latency && !deepest.empty())) continue;
      latency = takes;
      deepest = text_of(directory + "/name");
    }
  }
  if (deepest.empty()) {
    return {"sleep states", Verdict::kGood, "the kernel uses none", ""};
  }
  const std::string value = deepest + " takes " + std::to_string(latency) + " us to leave";
  if (latency <= kWakeMicrosecondsMax) return {"sleep states", Verdict::kGood, value, ""};
  return {"sleep states",
          Verdict::kWarning,
          value,
          "a sleeping shard wakes that much later: start the kernel with intel_idle.max_cstate=1 "
          "processor.max_cstate=1",
          settings,
          "intel_idle.max_cstate=1 processor.max_cstate=1"};
}

// With `is_asked`, good if all cores of the configuration's shards are isolated; otherwise good if
// any core is.
Finding isolated_cores(const View& view, bool is_asked) {
  const std::string list = text_of(view.root + kCpus + "/isolated");
  std::set<int> shared = is_asked ? view.cpus : std::set<int>();
  for (const int cpu : numbers_of(list)) shared.erase(cpu);
  const std::string value = list.empty() ? "none" : list;
  if (!list.empty() && shared.empty()) return {"isolated cores", Verdict::kGood, value, ""};
  const std::string wanted = is_asked ? list_text(view.cpus) : "LIST";
  const std::string words = "isolcpus=" + wanted + " nohz_full=" + wanted + " rcu_nocbs=" + wanted;
  return {
      "isolated cores",
      Verdict::kWarning,
      is_asked ? value + "; cpu " + list_text(shared) + " of the shards is not isolated" : value,
      "other programs and the kernel's work interrupt the shards: start the kernel with " + words +
          (is_asked ? "" : ", with their cores as LIST"),
      {},
      is_asked ? words : ""};
}

Finding clock(const std::string& root) {
  const std::string source =
      text_of(root + "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const bool is_fast = source.empty() || source == "tsc" || source == "kvm-clock";
  return {"clock", is_fast ? Verdict::kGood : Verdict::kWarning,
          source.empty() ? "unknown" : source,
          is_fast ? ""
                  : "reading it takes a system call: start the kernel with tsc=reliable, if the "
                    "processor's own clock is reliable"};
}

std::set<int> nodes(const std::string& root) {
  return numbers_in(names_in(root + "/sys/devices/system/node"), "node");
}

// "Node 0 MemTotal:  3970400 kB"
uint64_t node_bytes(const std::string& root, int node) {
  const std::string number = std::to_string(node);
  const std::string file = root + "/sys/devices/system/node/node" + number + "/meminfo";
  return read_number_field(file.c_str(), "Node " + number + " MemTotal").value_or(0) * kKiB;
}

Finding numa(const std::string& root) {
  const std::set<int> there = nodes(root);
  if (there.size() <= 1) return {"NUMA", Verdict::kGood, "one node", ""};
  std::string text;
  for (const int node : there) {
    const std::string cpus =
        text_of(root + "/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
    add_word(&text, std::string(format_node(node).text) + ": cpu " +
                        (cpus.empty() ? "none" : cpus) + ", " +
                        format_bytes(node_bytes(root, node)).text);
  }
  if (text_of(root + "/proc/sys/kernel/numa_balancing") != "1") {
    return {"NUMA", Verdict::kGood, text, ""};
  }
  return {"NUMA",
          Verdict::kWarning,
          text + "; and the kernel moves pages between nodes",
          "this causes page faults: sysctl kernel.numa_balancing=0",
          {{"/proc/sys/kernel/numa_balancing", "0", "kernel.numa_balancing = 0"}}};
}

struct FreeMemory {
  uint64_t pages = 0;
  uint64_t hugepages = 0;  // pages in free blocks of 2 MiB or more
};

// proc(5), /proc/buddyinfo: Node N, zone NAME, then the numbers of free blocks of 2^0 pages, 2^1
// pages, and so on.
void add_free(const char* line, void* context) {
  auto* found = static_cast<FreeMemory*>(context);
  std::string_view rest(line);
  for (int i = 0; i < 4; ++i) take_word(&rest);  // "Node N, zone NAME"
  for (int order = 0; const auto count = try_take_number<uint64_t>(&rest); ++order) {
    found->pages += *count << order;
    if (order >= kHugepageOrder) found->hugepages += *count << order;
  }
}

Finding fragmentation(const std::string& root) {
  FreeMemory found;
  const bool is_read = read_lines((root + "/proc/buddyinfo").c_str(), &add_free, &found).ok();
  if (!is_read || found.pages == 0) {
    return {"free memory", Verdict::kGood, "/proc/buddyinfo has no data", ""};
  }
  const uint64_t page = 4 * kKiB;
  const std::string value = std::string(format_bytes(found.pages * page).text) + ", " +
                            format_bytes(found.hugepages * page).text + " of it in blocks of 2 MiB";
  if (found.hugepages * 2 >= found.pages) return {"free memory", Verdict::kGood, value, ""};
  return {"free memory",
          Verdict::kWarning,
          value,
          "it is fragmented, and cannot become hugepages: echo 1 > /proc/sys/vm/compact_memory, or "
          "reserve hugepages early, on the kernel's command line",
          {{"/proc/sys/vm/compact_memory", "1", ""}}};
}

Finding ptrace_scope(const std::string& root) {
  const auto scope = read_number_file((root + "/proc/sys/kernel/yama/ptrace_scope").c_str());
  if (!scope) return {"ptrace scope", Verdict::kGood, "restricted by user only", ""};
  const std::string value = "kernel.yama.ptrace_scope is " + std::to_string(*scope);
  if (*scope <= 1) return {"ptrace scope", Verdict::kGood, value, ""};
  return {"ptrace scope", Verdict::kWarning, value,
          "single copy by cma needs CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=1 "
          "(docs/single_copy.md)"};
}

Finding iommu(const std::string& root) {
  const size_t groups = names_in(root + "/sys/kernel/iommu_groups").size();
  if (groups == 0) {
    return {"IOMMU", Verdict::kWarning, "none, or not in use",
            "for PCI devices that services drive: turn it on in the firmware (VT-d, AMD-Vi), and "
            "start the kernel with intel_iommu=on"};
  }
  std::string kinds;
  for (const std::string& name : names_in(root + "/sys/class/iommu")) add_word(&kinds, name);
  return {"IOMMU", Verdict::kGood,
          std::to_string(groups) + " groups" + (kinds.empty() ? "" : " (" + kinds + ")"), ""};
}

Finding vfio(const std::string& root) {
  const std::string driver = "/sys/bus/pci/drivers/vfio-pci";
  if (access((root + "/dev/vfio/vfio").c_str(), F_OK) != 0 || !has_vfio_driver(root)) {
    return {"VFIO", Verdict::kWarning, "not loaded",
            "for PCI devices that services drive: modprobe vfio-pci; lasts with: echo vfio-pci > "
            "/etc/modules-load.d/vfio-pci.conf"};
  }
  std::string devices;
  for (const std::string& name : names_in(root + driver)) {
    if (name.find(':') == std::string::npos) continue;  // "bind", "new_id"
    const std::string link = root + driver + "/" + name + "/iommu_group";
    char target[256];
    const ssize_t bytes = readlink(link.c_str(), target, sizeof target);
    const std::string group(target, bytes > 0 ? static_cast<size_t>(bytes) : 0);
    add_word(&devices, name + " (group " + group.substr(group.rfind('/') + 1) + ")");
  }
  return {"VFIO", Verdict::kGood, devices.empty() ? "loaded; it has no device" : devices, ""};
}

}  // namespace

std::vector<Finding> machine_findings(const std::set<int>& asked, const std::string& root) {
  const View view = look_at(asked, root);
  return {kernel(root),      threads_of_cores(view),
          governor(view),    sleep_states(view),
          clock(root),       isolated_cores(view, !asked.empty()),
          numa(root),        fragmentation(root),
          ptrace_scope(root)};
}

std::vector<Finding> device_findings(const std::string& root) { return {iommu(root), vfio(root)}; }

}  // namespace bedplate
