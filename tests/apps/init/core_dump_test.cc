// Core dumps: the settings that the kernel gets, and the device that a dump is written to.
#include "apps/init/core_dump.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include "platform/log.h"
#include "tests/apps/init/fake_machine.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Calls choose_dump() for the pool of the process. Logs "chosen", or the error.
void choose(CrashDump dump) {
  test::as_first_process([dump] {
    CrashSettings settings;
    settings.action = MachineEnd::kPowerOff;
    settings.dump = dump;
    settings.device = "/dev/disk";
    settings.owners = {"boot"};
    const auto chosen = choose_dump(settings, process_pool());
    if (!chosen.ok()) log_error(chosen.error());
    if (chosen.ok()) BP_LOG_INFO("chosen");
  });
}

void dump_to(const char* device, const char* end) {
  test::as_first_process([&] {
    const char* words[] = {"/init", kDumpCore, "1", device, end, "3"};
    int ends[2];
    BP_PROBE_CHECK(pipe(ends) == 0 && write(ends[1], "core", 4) == 4);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    dump_core(6, const_cast<char**>(words));
  });
}

}  // namespace

BP_PROBE(ChooseNoDump) { choose(CrashDump::kNone); }
BP_PROBE(ChooseMetadata) { choose(CrashDump::kMetadata); }
BP_PROBE(ChooseOwners) { choose(CrashDump::kOwners); }
BP_PROBE(DumpToADisk) { dump_to("/dev/disk", "power-off"); }
BP_PROBE(DumpToNothing) { dump_to("/dev/none", "halt"); }

// A file with a limit of two bytes stands for a small disk.
BP_PROBE(DumpToASmallDisk) {
  const rlimit two = {2, 2};
  signal(SIGXFSZ, SIG_IGN);
  BP_PROBE_CHECK(setrlimit(RLIMIT_FSIZE, &two) == 0);
  dump_to("/dev/disk", "reboot");
}

TEST_GROUP(CoreDump) {
  test::FakeMachine machine;

  void setup() override {
    machine.write("/dev/disk", "");
    for (const char* file : {"kernel/core_pattern", "kernel/core_pipe_limit"}) {
      machine.write((std::string("/proc/sys/") + file).c_str(), "");
    }
    machine.write("/proc/self/coredump_filter", "");
  }
  void says(const char* probe, const char* words) {
    const test::Ended ended = machine.run(probe);
    STRCMP_CONTAINS(words, ended.text);
  }
};

TEST(CoreDump, WordsMustBeThereAndOfTheFirstProcess) {
  const char* words[] = {"/init", kDumpCore, "2", "/nowhere", "halt", "0"};
  LONGS_EQUAL(2, dump_core(2, const_cast<char**>(words)));
  LONGS_EQUAL(2, dump_core(6, const_cast<char**>(words)));
}

TEST(CoreDump, TheKernelIsToldWhomToGiveIt) {
  BP_SKIP_WITHOUT_MACHINE();
  says("ChooseMetadata", "chosen");
  STRCMP_EQUAL("|/init dump-core %P /dev/disk power-off 5",
               text_in(machine.path("/proc/sys/kernel/core_pattern")).c_str());
  STRCMP_EQUAL("1", text_in(machine.path("/proc/sys/kernel/core_pipe_limit")).c_str());
  STRCMP_EQUAL("0x63", text_in(machine.path("/proc/self/coredump_filter")).c_str());
  says("ChooseOwners", "chosen");
}

TEST(CoreDump, WithoutOneTheKernelIsToldNothing) {
  BP_SKIP_WITHOUT_MACHINE();
  says("ChooseNoDump", "chosen");
  STRCMP_EQUAL("", text_in(machine.path("/proc/sys/kernel/core_pattern")).c_str());
}

TEST(CoreDump, AKernelWithoutDumpsIsAnError) {
  BP_SKIP_WITHOUT_MACHINE();
  std::filesystem::remove(machine.path("/proc/sys/kernel/core_pipe_limit"));
  says("ChooseMetadata",
       "writing 1 to /proc/sys/kernel/core_pipe_limit: No such file or directory; "
       "boot a kernel with core dumps");
}

// A helper that the kernel starts has no standard error, so it opens the kernel's log.
TEST(CoreDump, WhatComesIsOnTheDisk) {
  BP_SKIP_WITHOUT_MACHINE();
  says("DumpToADisk", "");
  STRCMP_EQUAL("core", text_in(machine.path("/dev/disk")).c_str());
  const std::string said = text_in(machine.path("/dev/kmsg"));
  STRCMP_CONTAINS("crash: a dump of 4 bytes is on /dev/disk", said.c_str());
  STRCMP_CONTAINS("crash: power-off in 3 s", said.c_str());
}

TEST(CoreDump, WhatHasNoRoomIsCounted) {
  BP_SKIP_WITHOUT_MACHINE();
  std::filesystem::remove(machine.path("/dev/kmsg"));  // then the log goes to standard error
  says("DumpToASmallDisk", "crash: writing the dump to /dev/disk, which has 2 of 4 bytes: File too "
                           "large; name a larger device in [crash]");
  STRCMP_EQUAL("co", text_in(machine.path("/dev/disk")).c_str());
}

TEST(CoreDump, WhatHasNoDeviceIsLostAndTheMachineEndsAllTheSame) {
  BP_SKIP_WITHOUT_MACHINE();
  says("DumpToNothing", "");
  const std::string said = text_in(machine.path("/dev/kmsg"));
  STRCMP_CONTAINS("crash: opening /dev/none for the dump, which is lost", said.c_str());
  STRCMP_CONTAINS("crash: halt in 3 s", said.c_str());
}
