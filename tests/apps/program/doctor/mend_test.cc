// doctor --fix on a simulated machine: it makes all changes that last until the next boot, and asks
// before it makes changes that outlast a boot.
#include "apps/program/doctor/mend.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "apps/program/doctor/machine_findings.h"
#include "tests/support/fake_root.h"
#include "tests/support/progress_news.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Mend) {
  test::FakeRoot root;
  std::vector<std::string> questions;
  std::vector<std::string> told;
  std::vector<Error> failed;
  bool agrees = true;
  const std::string balancing = "/proc/sys/kernel/numa_balancing";

  std::string text_of(const std::string& file) {
    std::ifstream opened(root.path() + file);
    return {std::istreambuf_iterator<char>(opened), std::istreambuf_iterator<char>()};
  }
  void mend_all(const std::vector<Finding>& findings) {
    const MendTalk talk = {[this](const std::string& question) {
                             questions.push_back(question);
                             return agrees;
                           },
                           [this](const std::string& line) { told.push_back(line); }};
    failed = mend(findings, talk, root.path());
  }
  std::string all_told() {
    std::string all;
    for (const std::string& line : told) all += line + "\n";
    return all;
  }
  Finding unbalanced() {
    root.write(balancing, "1\n");
    Finding finding = {"NUMA", Verdict::kWarning, "", ""};
    finding.settings = {{balancing, "0", "kernel.numa_balancing = 0"}};
    return finding;
  }
};

TEST(Mend, WhatLastsUntilTheNextBootIsDoneWithoutAQuestion) {
  const std::string cpus = "/sys/devices/system/cpu/";
  root.write(cpus + "cpu0/cpufreq/scaling_governor", "powersave\n");
  root.write(cpus + "cpu1/cpufreq/scaling_governor", "performance\n");
  for (const char* state : {"state1", "state2"}) {
    root.write(cpus + "cpu1/cpuidle/" + state + "/name", state);
    root.write(cpus + "cpu1/cpuidle/" + state + "/disable", "0\n");
  }
  root.write(cpus + "cpu1/cpuidle/state1/latency", "2\n");
  root.write(cpus + "cpu1/cpuidle/state2/latency", "133\n");
  root.write("/proc/buddyinfo", "Node 0, zone   Normal   512 0 0 0 0 0 0 0 0 0 0\n");
  root.write("/proc/sys/vm/compact_memory", "");
  mend_all(machine_findings({}, root.path()));
  LONGS_EQUAL(0, failed.size());
  LONGS_EQUAL(0, questions.size());
  STRCMP_EQUAL("performance",
               text_of(cpus + "cpu0/cpufreq/scaling_governor").substr(0, 11).c_str());
  STRCMP_EQUAL("0\n", text_of(cpus + "cpu1/cpuidle/state1/disable").c_str());
  STRCMP_EQUAL("1", text_of(cpus + "cpu1/cpuidle/state2/disable").substr(0, 1).c_str());
  STRCMP_EQUAL("1", text_of("/proc/sys/vm/compact_memory").c_str());
  CHECK_FALSE(std::filesystem::exists(root.path() + lasting_file()));
  STRCMP_EQUAL("done: echo performance > /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor\n"
               "done: echo 1 > /sys/devices/system/cpu/cpu1/cpuidle/state2/disable\n"
               "done: echo 1 > /proc/sys/vm/compact_memory\n"
               "to do: set this in /etc/default/grub, then run update-grub and reboot:\n"
               "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX cpufreq.default_governor=performance "
               "intel_idle.max_cstate=1 processor.max_cstate=1\"\n",
               all_told().c_str());
}

TEST(Mend, HugepagesAreReservedByAndBy) {
  const std::string count = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
  root.write(count, "10\n");
  Finding missing = {"hugepages", Verdict::kFault, "", ""};
  missing.settings = {{count, "1500", "", PageSize::k2MiB}};
  const test::ProgressNews news;
  mend_all({missing});
  LONGS_EQUAL(0, failed.size());
  STRCMP_EQUAL("1500", text_of(count).substr(0, 4).c_str());
  LONGS_EQUAL(2, news.count_of("reserving hugepages: "));
  STRCMP_EQUAL(("done: echo 1500 > " + count + "\n").c_str(), all_told().c_str());
  std::filesystem::remove(root.path() + count);
  std::filesystem::create_symlink("/dev/null", root.path() + count);  // it reserves none
  mend_all({missing});
  LONGS_EQUAL(1, failed.size());
  STRCMP_EQUAL("1500 were asked for, and there are 0", failed[0].answer);
  LONGS_EQUAL(1, told.size());
  std::filesystem::remove_all(root.path() + "/sys");
  mend_all({missing});
  LONGS_EQUAL(1, failed.size());
  STRCMP_CONTAINS("run it as root", failed[0].cure);
}

TEST(Mend, AsksBeforeSomethingLasts) {
  std::filesystem::create_directory(root.path() + "/etc");
  agrees = false;
  mend_all({unbalanced()});
  LONGS_EQUAL(1, questions.size());
  STRCMP_EQUAL("write /etc/sysctl.d/90-bedplate.conf with this content:\n"
               "# Written by `bedplate doctor --fix`.\n"
               "kernel.numa_balancing = 0\n",
               questions[0].c_str());
  CHECK_FALSE(std::filesystem::exists(root.path() + lasting_file()));
  STRCMP_EQUAL("0", text_of(balancing).substr(0, 1).c_str());
  STRCMP_CONTAINS("not written: the changes last", all_told().c_str());
}

TEST(Mend, WhatIsInTheFileStays) {
  root.write(lasting_file(), "# ours\nvm.swappiness = 1\nkernel.numa_balancing=1\n");
  mend_all({unbalanced()});
  LONGS_EQUAL(0, failed.size());
  STRCMP_EQUAL("# ours\nvm.swappiness = 1\nkernel.numa_balancing = 0\n",
               text_of(lasting_file()).c_str());
  CHECK_FALSE(std::filesystem::exists(root.path() + lasting_file() + ".new"));
  mend_all({unbalanced()});  // the file has all settings, so mend_all asks no question
  LONGS_EQUAL(1, questions.size());
}

// At boot the last line of a name wins.
TEST(Mend, OfSeveralLinesOfANameTheLastIsReplaced) {
  root.write(lasting_file(), "kernel.numa_balancing = 0\nkernel.numa_balancing = 1\n");
  mend_all({unbalanced()});
  STRCMP_EQUAL("kernel.numa_balancing = 0\nkernel.numa_balancing = 0\n",
               text_of(lasting_file()).c_str());
}

TEST(Mend, TheLastLineStaysWithoutANewlineAndALongOneStaysWhole) {
  const std::string comment = "# " + std::string(5000, 'x');
  root.write(lasting_file(), comment + "\nvm.swappiness = 1");
  mend_all({unbalanced()});
  LONGS_EQUAL(0, failed.size());
  STRCMP_EQUAL((comment + "\nvm.swappiness = 1\nkernel.numa_balancing = 0\n").c_str(),
               text_of(lasting_file()).c_str());
}

TEST(Mend, AFileThatCannotBeReadIsNotReplaced) {
  std::filesystem::create_directories(root.path() + lasting_file());  // read: EISDIR
  mend_all({unbalanced()});
  LONGS_EQUAL(1, failed.size());
  STRCMP_CONTAINS(lasting_file().c_str(), failed[0].doing);
  STRCMP_EQUAL("Is a directory", failed[0].answer);
  LONGS_EQUAL(0, questions.size());
}

TEST(Mend, AFileThatTakesAPartFailsWithItsReason) {
  std::filesystem::create_directories(root.path() + "/etc");
  rlimit before = {};
  LONGS_EQUAL(0, getrlimit(RLIMIT_FSIZE, &before));
  const rlimit small = {.rlim_cur = 16, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const Finding finding = unbalanced();
  LONGS_EQUAL(0, setrlimit(RLIMIT_FSIZE, &small));
  mend_all({finding});
  LONGS_EQUAL(0, setrlimit(RLIMIT_FSIZE, &before));
  std::signal(SIGXFSZ, handler);
  LONGS_EQUAL(1, failed.size());
  STRCMP_EQUAL("File too large", failed[0].answer);
  CHECK_FALSE(std::filesystem::exists(root.path() + lasting_file() + ".new"));
}

TEST(Mend, AFileThatCannotBeRenamedHasACure) {
  std::filesystem::create_directories(root.path() + lasting_file());
  const auto written = write_lasting("vm.swappiness = 1\n", root.path());
  STRCMP_EQUAL("Is a directory", written.ok() ? "" : written.error().answer);
  STRCMP_CONTAINS("run it as root", written.error().cure);
}

TEST(Mend, WhatFailsIsSaidAndTheRestIsDone) {
  Finding missing = {"gone", Verdict::kWarning, "", ""};
  missing.settings = {{"/proc/sys/gone", "1", "gone = 1"}};
  root.write("/etc", "a file where a directory should be");
  mend_all({missing, unbalanced()});
  LONGS_EQUAL(2, failed.size());
  STRCMP_CONTAINS("/proc/sys/gone", failed[0].doing);
  STRCMP_EQUAL("No such file or directory", failed[0].answer);
  STRCMP_CONTAINS("run it as root", failed[0].cure);
  STRCMP_CONTAINS("/etc/sysctl.d", failed[1].doing);
  STRCMP_EQUAL("0", text_of(balancing).substr(0, 1).c_str());
  STRCMP_EQUAL("write /etc/sysctl.d/90-bedplate.conf with this content:\n"
               "# Written by `bedplate doctor --fix`.\nkernel.numa_balancing = 0\n",
               questions[0].c_str());
}
