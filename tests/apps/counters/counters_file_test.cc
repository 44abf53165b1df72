// The counters file is made, kept and removed, whatever already exists at its path.
#include "apps/counters/counters_file.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "platform/log.h"
#include "tests/apps/counters/counters_file_fixture.h"
#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(CountersFile, CountersFileFixture){};

TEST(CountersFile, BeginsZeroedAndOnPagesOfItsOwn) {
  Running file(directory, "demo");
  CHECK_EQUAL(0, file.gets().hits.read());
  CHECK_EQUAL(0, reinterpret_cast<uintptr_t>(&file.file.header()) % kCacheLineBytes);
}

TEST(CountersFile, ACleanStopRemovesTheFileAndTheEmptyDirectory) {
  {
    Running file(directory, "demo");
    CHECK(exists(path("demo")));
  }
  CHECK(!exists(path("demo")));
  CHECK(!exists(directory));
}

TEST(CountersFile, ADirectoryThatHoldsSomethingElseStays) {
  mkdir(directory.c_str(), 0755);
  const std::string note = directory + "/note";
  Fd(open(note.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)).close();
  { Running file(directory, "demo"); }
  CHECK(exists(note));
  unlink(note.c_str());
  rmdir(directory.c_str());
}

TEST(CountersFile, CheckingLeavesEverythingAsItWas) {
  {
    NameLock lock;
    CHECK(lock.take(directory, "demo").ok());
    CHECK(check_counters_file(lock).ok());
    CHECK(!exists(path("demo")));
  }
  CHECK(!exists(directory));
}

TEST(CountersFile, CheckingKeepsTheCountersOfACrash) {
  leave_behind("demo");
  {
    NameLock lock;
    CHECK(lock.take(directory, "demo").ok());
    CHECK(check_counters_file(lock).ok());
  }
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK_EQUAL(77, hits_of(opened.value()));
  remove_all("demo");
}

TEST(CountersFile, ADirectoryThatOthersUseStays) {
  auto* first = new Running(directory, "one");
  {
    Running second(directory, "two");
    delete first;
    CHECK(exists(path("two")));
    CHECK(!exists(path("one")));
  }
  CHECK(!exists(directory));  // the last appliance removes the directory
}

TEST(CountersFile, AFileThatCannotBeMadeIsRefused) {
  mkdir(directory.c_str(), 0755);
  mkdir(path("demo").c_str(), 0755);  // a directory has its name
  {
    NameLock lock;
    CountersFile file;
    CHECK(lock.take(directory, "demo").ok());
    const Result<void> made = file.create(lock);
    CHECK(!made.ok());
    STRCMP_EQUAL(("creating the counters file " + path("demo")).c_str(), made.error().doing);
    STRCMP_EQUAL("Is a directory", made.error().answer);
  }
  rmdir(path("demo").c_str());
  rmdir(directory.c_str());
}

TEST(CountersFile, WhatAPlantedLinkLeadsToStaysAsItIs) {
  mkdir(directory.c_str(), 0755);
  const std::string precious = directory + "/precious";
  const Fd fd(open(precious.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  LONGS_EQUAL(4, write(fd.number(), "keep", 4));
  for (const bool is_symbolic : {true, false}) {
    LONGS_EQUAL(0, is_symbolic ? symlink(precious.c_str(), path("demo").c_str())
                               : link(precious.c_str(), path("demo").c_str()));
    { Running file(directory, "demo"); }
    struct stat status {};
    LONGS_EQUAL(0, fstat(fd.number(), &status));
    LONGS_EQUAL(4, status.st_size);
  }
  unlink(precious.c_str());
  rmdir(directory.c_str());
}

// Other users may read the counters of a crashed appliance, and so may lock the file.
TEST(CountersFile, ALockOfAReaderKeepsNobodyFromStarting) {
  leave_behind("demo");
  const Fd held = lock_to_read(path("demo"));
  Running file(directory, "demo");
  file.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(opened.value().is_running());
}

// A reader has the file of the crashed appliance open while the next appliance starts.
TEST(CountersFile, WhatACrashedOneLeftDoesNotChangeUnderItsReader) {
  leave_behind("demo");
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  Running file(directory, "demo");
  CHECK_EQUAL(77, hits_of(opened.value()));
}

// On a full file system, the first access to a mapping would end the process. So the space is
// allocated first.
BP_PROBE(CountersFileOnAFullFileSystem) {
  if (geteuid() != 0) test::probe_skipped("a file system of its own takes root");
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    test::probe_skipped("this process may not mount anything");
  }
  BP_PROBE_CHECK(mount("none", "/tmp", "tmpfs", 0, "size=64k") == 0);
  const std::vector<CounterSet> sets = {
      {"cache", "gets", "", 128 * 1024, described_counters<HitCounters>()}};
  NameLock lock;
  BP_PROBE_CHECK(lock.take("/tmp/run", "demo").ok());
  const Result<void> checked = check_counters_file(lock, sets);
  BP_PROBE_CHECK(!checked.ok());
  BP_PROBE_CHECK(std::strstr(checked.error().doing, " for the counters file /tmp/run/demo") !=
                 nullptr);
  BP_PROBE_CHECK(std::strcmp(checked.error().answer, std::strerror(ENOSPC)) == 0);
  BP_PROBE_CHECK(std::strstr(checked.error().cure, "df /tmp/run") != nullptr);
  CountersFile file;
  const Result<void> made = file.create(lock, sets);
  BP_PROBE_CHECK(!made.ok());
  BP_PROBE_CHECK(std::strcmp(made.error().doing, checked.error().doing) == 0);
  BP_PROBE_CHECK(std::strcmp(made.error().answer, checked.error().answer) == 0);
  BP_PROBE_CHECK(access("/tmp/run/demo.stats", F_OK) != 0);
}

TEST(CountersFile, AFullFileSystemIsAnErrorAndNothingIsLeft) {
  BP_CHECK_PROBE(CountersFileOnAFullFileSystem);
}

// A crashed appliance's file has all blocks, but its directory is not this user's.
BP_PROBE(CountersFileInAForeignDirectory) {
  if (geteuid() != 0) test::probe_skipped("changing the user takes root");
  char root[] = "/tmp/bedplate-counters-XXXXXX";
  BP_PROBE_CHECK(mkdtemp(root) != nullptr && chmod(root, 0755) == 0);
  std::optional<NameLock> lock(std::in_place);
  BP_PROBE_CHECK(lock->take(std::string(root) + "/run", "demo").ok());
  BP_PROBE_CHECK(chmod(lock->directory().c_str(), 0755) == 0);
  const std::string path = counters_path(lock->directory(), "demo");
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  BP_PROBE_CHECK(posix_fallocate(file.number(), 0, 1 << 20) == 0);
  BP_PROBE_CHECK(check_counters_file(*lock).ok());
  BP_PROBE_CHECK(seteuid(65534) == 0);
  const bool is_good = check_counters_file(*lock).ok();
  BP_PROBE_CHECK(seteuid(0) == 0);
  unlink(path.c_str());
  lock.reset();
  rmdir(root);
  BP_PROBE_CHECK(!is_good);
}

TEST(CountersFile, AForeignDirectoryIsAnErrorOfTheCheckToo) {
  BP_CHECK_PROBE(CountersFileInAForeignDirectory);
}

namespace {

// The next signal comes this long after the last one was handled. If kSignalsInVainMax signals come
// before a file is made, the machine is too slow for them, and their interval doubles.
constexpr uint32_t kSignalsInVainMax = 100;
constexpr suseconds_t kSignalUs = 20;
volatile sig_atomic_t signals_in_vain = 0;
volatile sig_atomic_t signal_us = kSignalUs;

void send_next_signal(int) {
  signals_in_vain = signals_in_vain + 1;
  if (signals_in_vain % kSignalsInVainMax == 0 && signal_us < 100'000) signal_us = 2 * signal_us;
  const itimerval once = {{0, 0}, {0, signal_us}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

}  // namespace

TEST(CountersFile, SignalsDoNotKeepItFromBeingMade) {
  const std::string on_tmpfs = "/dev/shm/bedplate-counters-" + std::to_string(getpid());
  const test::Ended ended = test::run_forked([&] {
    struct sigaction action = {};
    action.sa_handler = &send_next_signal;
    sigaction(SIGALRM, &action, nullptr);
    send_next_signal(SIGALRM);
    for (int i = 0; i < 500; ++i) {
      signals_in_vain = 0;
      signal_us = kSignalUs;
      NameLock lock;
      CountersFile file;
      if (!lock.take(on_tmpfs, "demo").ok()) _exit(2);
      const auto made = file.create(lock);
      if (made.ok()) continue;
      log_error(made.error());
      _exit(1);
    }
  });
  rmdir(on_tmpfs.c_str());
  CHECK_TEXT(ended.exit_code == 0, ended.text);
}

TEST(CountersFile, TheNextOneBeginsAnewWhereACrashedOneStopped) {
  leave_behind("demo");
  {
    Running file(directory, "demo");
    CHECK_EQUAL(0, file.gets().hits.read());
    check_unreadable("demo", "the file is incomplete, or not a counters file");
    file.publish();
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    CHECK(opened.value().is_running());
  }
  CHECK(!exists(directory));
}

namespace {

std::string summary_of(const std::string& path) {
  auto opened = CountersReader::open_file(path);
  CHECK(opened.ok());
  const auto crash = opened.value().crash();
  return crash ? crash->summary() : "none";
}

}  // namespace

TEST(CountersFile, TheNextOneKeepsTheFileOfACrash) {
  for (const char* text : {"the first\n", "the second\n"}) {
    leave_behind("demo", [&](CountersHeader& header) { record_crash(header, text); });
    Running file(directory, "demo");
    file.publish();
    STRCMP_EQUAL("none", summary_of(path("demo")).c_str());
    STRCMP_EQUAL(text, (summary_of(crashed("demo")) + "\n").c_str());
    Result<CountersReader> opened = CountersReader::open_file(crashed("demo"));
    CHECK(!opened.value().is_running());
    CHECK_EQUAL(77, hits_of(opened.value()));
  }
  // One that was killed does not replace it, nor does a clean stop remove it.
  leave_behind("demo");
  { Running file(directory, "demo"); }
  STRCMP_EQUAL("the second", summary_of(crashed("demo")).c_str());
  auto names = list_crashed(directory);
  CHECK(names.ok());
  LONGS_EQUAL(1, names.value().size());
  STRCMP_EQUAL("demo", names.value()[0].c_str());
  remove_all("demo");
}

TEST(CountersFile, ARecordThatCannotBeKeptKeepsNobodyFromStarting) {
  leave_behind("demo", [](CountersHeader& header) { record_crash(header, "text\n"); });
  mkdir(crashed("demo").c_str(), 0755);
  test::StderrCapture capture;
  { Running file(directory, "demo"); }
  const std::string said = capture.finish();
  STRCMP_CONTAINS("keeping the record of a crash as ", said.c_str());
  STRCMP_CONTAINS("remove what is there", said.c_str());
  rmdir(crashed("demo").c_str());
  rmdir(directory.c_str());
}

BP_PROBE(CountersFileThatNeedsTheSpaceOfACrash) {
  if (geteuid() != 0) test::probe_skipped("a file system of its own takes root");
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    test::probe_skipped("this process may not mount anything");
  }
  BP_PROBE_CHECK(mount("none", "/tmp", "tmpfs", 0, "size=256k") == 0);
  const std::vector<CounterSet> sets = {
      {"cache", "gets", "", 128 * 1024, described_counters<HitCounters>()}};
  NameLock lock;
  BP_PROBE_CHECK(lock.take("/tmp/run", "demo").ok());
  {
    const Fd old(open("/tmp/run/demo.crash", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    BP_PROBE_CHECK(posix_fallocate(old.number(), 0, 200 * 1024) == 0);
  }
  BP_PROBE_CHECK(check_counters_file(lock, sets).ok());
  BP_PROBE_CHECK(access("/tmp/run/demo.crash", F_OK) == 0);
  CountersFile file;
  BP_PROBE_CHECK(file.create(lock, sets).ok());
  BP_PROBE_CHECK(access("/tmp/run/demo.crash", F_OK) != 0);
}

TEST(CountersFile, TheSpaceOfARecordIsTakenIfItIsNeeded) {
  BP_CHECK_PROBE(CountersFileThatNeedsTheSpaceOfACrash);
}
