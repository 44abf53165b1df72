// Crashes: the first process logs its own crash, and the records of earlier crashes. tests/guest
// tests the end of the machine and the kernel's part.
#include "apps/init/crash.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include <unistd.h>

#include "platform/log.h"
#include "tests/apps/init/fake_machine.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

BP_PROBE(CrashByASignal) {
  test::as_first_process([] {
    Watchdog watchdog;
    CrashSettings settings;
    settings.action = MachineEnd::kHalt;
    settings.delay_s = 1;
    BP_PROBE_CHECK(end_machine_at_crash(settings, watchdog).ok());
    raise(SIGILL);
  });
}

BP_PROBE(CrashByAFault) {
  test::as_first_process([] {
    Watchdog watchdog;
    BP_PROBE_CHECK(end_machine_at_crash({}, watchdog).ok());
    *reinterpret_cast<volatile int*>(uintptr_t{0x1000}) = 1;
  });
}

// The crash handler finds the other thread by its directory, and stops it until the machine ends.
BP_PROBE(CrashBesideAThread) {
  test::as_first_process([] {
    std::atomic<pid_t> other{0};
    std::thread thread([&other] {
      other = gettid();
      other.notify_one();
      for (;;) pause();
    });
    other.wait(0);
    std::filesystem::create_directories("/proc/self/task/" + std::to_string(other));
    Watchdog watchdog;
    BP_PROBE_CHECK(end_machine_at_crash({}, watchdog).ok());
    raise(SIGABRT);
  });
}

BP_PROBE(CrashWithADump) {
  test::as_first_process([] {
    Watchdog watchdog;
    BP_PROBE_CHECK(end_machine_at_crash({}, watchdog).ok());
    dump_crashes();
    raise(SIGABRT);
  });
}

BP_PROBE(OldRecords) {
  test::as_first_process([] {
    say_where_records_go();
    BP_LOG_INFO("records: %d", show_old_records());
  });
}

TEST_GROUP(Crash) {
  test::FakeMachine machine;

  std::string said(const char* probe) {
    const test::Ended ended = machine.run(probe);
    return ended.text;
  }
};

TEST(Crash, IsRecordedAndEndsTheMachine) {
  BP_SKIP_WITHOUT_MACHINE();
  const test::Ended ended = machine.run("CrashByASignal");
  CHECK(ended.said("crash: signal 4 (ILL) in thread "));
  CHECK(ended.said("crash: halt in 1 s"));
  CHECK(ended.said("opening /sys/module/printk/parameters/always_kmsg_dump for crash records: No "
                   "such file"));
  LONGS_EQUAL(test::kMachineEnded, ended.exit_code);
}

TEST(Crash, OfAFaultTheAddressIsSaid) {
  BP_SKIP_WITHOUT_MACHINE();
  STRCMP_CONTAINS("crash: signal 11 (SEGV) at address 0x1000 in", said("CrashByAFault").c_str());
}

TEST(Crash, OfManyThreadsOneRecordsIt) {
  BP_SKIP_WITHOUT_MACHINE();
  machine.write("/proc/self/task/.keep", "");
  const std::string text = said("CrashBesideAThread");
  const size_t first = text.find("crash: signal 6 (ABRT)");
  CHECK(first != text.npos);
  CHECK(text.find("crash: signal", first + 1) == text.npos);
  STRCMP_CONTAINS("crash: reboot in 5 s", text.c_str());
}

// With a dump, the process ends by a fault, and the kernel takes over.
TEST(Crash, ToBeDumpedItEndsByAFault) {
  BP_SKIP_WITHOUT_MACHINE();
  const test::Ended ended = machine.run("CrashWithADump");
  CHECK(ended.said("crash: dumping, then reboot"));
  CHECK_FALSE(ended.said("crash: reboot in"));
  LONGS_EQUAL(1, ended.exit_code);  // ended by another signal than the guard's SIGSYS
}

TEST(Crash, ARecordThatCannotBeReadIsSaidAndKept) {
  BP_SKIP_WITHOUT_MACHINE();
  machine.write("/sys/fs/pstore/dmesg-3/within", "");
  STRCMP_CONTAINS("record of an earlier crash, dmesg-3:\n", said("OldRecords").c_str());
  CHECK(std::filesystem::exists(machine.path("/sys/fs/pstore/dmesg-3")));
}

TEST(Crash, OfAnEarlierOneOurLinesAreShownOnce) {
  BP_SKIP_WITHOUT_MACHINE();
  machine.write("/sys/module/pstore/parameters/backend", "ramoops\n");
  machine.write("/sys/fs/pstore/dmesg-1",
                "<6>kernel talk\n<3>bedplate: crash: signal 11\n<3>bedplate:   | an older one\n");
  const std::string text = said("OldRecords");
  STRCMP_CONTAINS("crash records: on the console, and kept by ramoops", text.c_str());
  STRCMP_CONTAINS("record of an earlier crash, dmesg-1:", text.c_str());
  STRCMP_CONTAINS("  | crash: signal 11\n", text.c_str());
  CHECK(text.find("an older one") == text.npos && text.find("kernel talk") == text.npos);
  STRCMP_CONTAINS("records: 1\n", text.c_str());
  CHECK_FALSE(std::filesystem::exists(machine.path("/sys/fs/pstore/dmesg-1")));
  STRCMP_CONTAINS("records: 0\n", said("OldRecords").c_str());
}

TEST(Crash, OfAKernelsOwnTheLastLinesAreShown) {
  BP_SKIP_WITHOUT_MACHINE();
  std::string lines = "the first line\n";
  for (int i = 0; i < 40; ++i) lines += "line\n";
  machine.write("/sys/fs/pstore/dmesg-2", lines + "Kernel panic\n");
  const std::string text = said("OldRecords");
  STRCMP_CONTAINS("  | Kernel panic\n", text.c_str());
  CHECK(text.find("the first line") == text.npos);
  STRCMP_CONTAINS("on the console only; pstore has no store", text.c_str());
}
