// Doctor's findings on simulated machines: good, or a warning or fault with its cure.
#include "apps/program/doctor/machine_findings.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_root.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(MachineFindings) {
  test::FakeRoot root;
  std::set<int> asked;  // cores
  const std::string cpus = "/sys/devices/system/cpu/";
  const std::string nodes = "/sys/devices/system/node/";

  // "good: VALUE", or "warning: VALUE; CURE".
  std::string said(const std::string& name) {
    std::vector<Finding> findings = machine_findings(asked, root.path());
    for (const Finding& finding : device_findings(root.path())) findings.push_back(finding);
    for (const Finding& finding : findings) {
      if (finding.name != name) continue;
      std::string text = std::string(to_text(finding.verdict)) + ": " + finding.value;
      if (!finding.cure.empty()) text += "; " + finding.cure;
      return text;
    }
    return "nothing of this name";
  }
  void expect(const char* name, const std::string& text) {
    STRCMP_EQUAL(text.c_str(), said(name).c_str());
  }
  void expect_part(const char* name, const std::string& text) {
    STRCMP_CONTAINS(text.c_str(), said(name).c_str());
  }
  void link(const std::string& file, const std::string& target) {
    const std::filesystem::path link_path(root.path() + file);
    std::error_code ignored;
    std::filesystem::create_directories(link_path.parent_path(), ignored);
    std::filesystem::create_symlink(target, link_path, ignored);
  }
};

TEST(MachineFindings, KernelIsNewEnough) {
  expect("kernel", "fault: /proc has no kernel release; mount -t proc proc /proc");
  const auto judge = [&](const char* release, const char* text) {
    root.write("/proc/sys/kernel/osrelease", release);
    expect("kernel", text);
  };
  const std::string needs =
      "; use Linux 5.14 or newer, which can populate memory without touching it";
  judge("5.14.0-rc1\n", "good: 5.14.0-rc1");
  judge("6.1.0-18-amd64\n", "good: 6.1.0-18-amd64");
  judge("10.0\n", "good: 10.0");
  judge("5.13.19\n", ("fault: 5.13.19" + needs).c_str());
  judge("4.19.0\n", ("fault: 4.19.0" + needs).c_str());
}

TEST(MachineFindings, ThreadsThatShareACoreAreNamed) {
  expect("threads of a core", "good: one");
  root.write(cpus + "cpu0/topology/thread_siblings_list", "0\n");
  root.write(cpus + "cpu1/topology/thread_siblings_list", "1\n");
  expect("threads of a core", "good: one");
  root.write(cpus + "cpu0/topology/thread_siblings_list", "0,2\n");
  root.write(cpus + "cpu2/topology/thread_siblings_list", "0,2\n");
  root.write(cpus + "cpu10/topology/thread_siblings_list", "10-11\n");
  expect_part("threads of a core", "warning: these CPUs share a core: 0,2 and 10-11; ");
}

TEST(MachineFindings, GovernorIsPerformanceEverywhere) {
  root.write(cpus + "cpufreq/nothing", "");
  expect("governor", "good: the kernel does not set the clock frequency");
  for (const char* core : {"cpu0", "cpu1", "cpu2", "cpu7"}) {
    root.write(cpus + core + "/cpufreq/scaling_governor", "performance\n");
  }
  expect("governor", "good: performance (cpu 0-2,7)");
  root.write(cpus + "cpu1/cpufreq/scaling_governor", "powersave\n");
  expect_part("governor", "warning: performance (cpu 0,2,7), powersave (cpu 1); for f in ");
}

TEST(MachineFindings, DeepestSleepThatIsAllowedCounts) {
  const auto add_state = [&](const char* state, const char* name, const char* latency) {
    const std::string directory = cpus + "cpu1/cpuidle/" + state + "/";
    root.write(directory + "name", name);
    root.write(directory + "latency", latency);
    root.write(directory + "disable", "0\n");
  };
  expect("sleep states", "good: the kernel uses none");
  add_state("state0", "POLL\n", "0\n");
  expect("sleep states", "good: POLL takes 0 us to leave");
  add_state("state1", "C1\n", "2\n");
  add_state("state2", "C6\n", "133\n");
  expect_part("sleep states", "warning: C6 takes 133 us to leave; ");
  root.write(cpus + "cpu1/cpuidle/state2/disable", "1\n");
  expect("sleep states", "good: C1 takes 2 us to leave");
}

TEST(MachineFindings, IsolatedCores) {
  root.write(cpus + "isolated", "\n");
  expect_part("isolated cores", "warning: none; ");
  root.write(cpus + "isolated", "2-5\n");
  expect("isolated cores", "good: 2-5");
}

// Only the cores of a configuration's shards are judged.
TEST(MachineFindings, CoresThatAreAskedAbout) {
  for (const char* core : {"cpu0", "cpu1"}) {
    root.write(cpus + core + "/topology/thread_siblings_list", "0-1\n");
    root.write(cpus + core + "/cpufreq/scaling_governor", "powersave\n");
    root.write(cpus + core + "/cpuidle/state3/name", "C6\n");
    root.write(cpus + core + "/cpuidle/state3/latency", "133\n");
  }
  root.write(cpus + "cpu2/topology/thread_siblings_list", "2\n");
  root.write(cpus + "cpu2/cpufreq/scaling_governor", "performance\n");
  root.write(cpus + "isolated", "2\n");
  asked = {2};
  expect("threads of a core", "good: one");
  expect("governor", "good: performance (cpu 2)");
  expect("sleep states", "good: the kernel uses none");
  expect("isolated cores", "good: 2");
  asked = {1, 2, 3};
  expect_part("threads of a core", "warning: these CPUs share a core: 0-1; ");
  expect_part("governor", "warning: performance (cpu 2), powersave (cpu 1); ");
  expect_part("sleep states", "warning: C6 takes 133 us to leave; ");
  expect_part("isolated cores", "warning: 2; cpu 1,3 of the shards is not isolated; ");
  expect_part("isolated cores", "isolcpus=1-3 nohz_full=1-3 rcu_nocbs=1-3");
}

TEST(MachineFindings, ClockWithoutASystemCall) {
  const std::string file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  expect("clock", "good: unknown");
  root.write(file, "tsc\n");
  expect("clock", "good: tsc");
  root.write(file, "hpet\n");
  expect_part("clock", "warning: hpet; reading it takes a system call: ");
}

TEST(MachineFindings, NodesWithTheirCoresAndMemory) {
  expect("NUMA", "good: one node");
  root.write(nodes + "node0/cpulist", "0-3\n");
  root.write(nodes + "node0/meminfo", "Node 0 MemTotal:        4194304 kB\nNode 0 MemFree: 1 kB\n");
  root.write("/proc/sys/kernel/numa_balancing", "1\n");
  expect("NUMA", "good: one node");
  root.write(nodes + "node1/cpulist", "\n");
  root.write(nodes + "node1/meminfo", "Node 1 MemTotal:        1048576 kB\n");
  const std::string there = "node 0: cpu 0-3, 4 GiB, node 1: cpu none, 1 GiB";
  expect("NUMA", "warning: " + there +
                     "; and the kernel moves pages between nodes; this causes page faults: sysctl "
                     "kernel.numa_balancing=0");
  root.write("/proc/sys/kernel/numa_balancing", "0\n");
  expect("NUMA", "good: " + there);
}

TEST(MachineFindings, FreeMemoryInPiecesOfAHugepage) {
  expect("free memory", "good: /proc/buddyinfo has no data");
  // 2^9 and 2^10 pages are 2 and 4 MiB; 256 pages of 4 KiB are 1 MiB.
  root.write("/proc/buddyinfo", "Node 0, zone      DMA      0 0 0 0 0 0 0 0 0 1 0\n"
                                "Node 1, zone   Normal    256 0 0 0 0 0 0 0 0 0 1\n");
  expect("free memory", "good: 7 MiB, 6 MiB of it in blocks of 2 MiB");
  root.write("/proc/buddyinfo", "Node 0, zone   Normal   512 256 0 0 0 0 0 0 0 1 0\nnonsense\n");
  expect_part("free memory", "warning: 6 MiB, 2 MiB of it in blocks of 2 MiB; ");
}

TEST(MachineFindings, PtraceScope) {
  expect("ptrace scope", "good: restricted by user only");
  root.write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
  expect("ptrace scope", "good: kernel.yama.ptrace_scope is 1");
  root.write("/proc/sys/kernel/yama/ptrace_scope", "2\n");
  expect_part("ptrace scope", "warning: kernel.yama.ptrace_scope is 2; ");
}

TEST(MachineFindings, DevicesThatServicesCanDrive) {
  expect_part("IOMMU", "warning: none, or not in use; ");
  expect_part("VFIO", "warning: not loaded; ");
  root.write("/sys/kernel/iommu_groups/0/type", "DMA\n");
  root.write("/sys/kernel/iommu_groups/12/type", "DMA\n");
  root.write("/sys/class/iommu/dmar0/x", "");
  expect("IOMMU", "good: 2 groups (dmar0)");
  root.write("/dev/vfio/vfio", "");
  root.write("/sys/bus/pci/drivers/vfio-pci/bind", "");
  expect("VFIO", "good: loaded; it has no device");
  link("/sys/bus/pci/drivers/vfio-pci/0000:03:00.0/iommu_group", "../../../kernel/iommu_groups/12");
  expect("VFIO", "good: 0000:03:00.0 (group 12)");
}
