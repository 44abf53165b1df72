// The counters file: who writes, who reads, and what is said when it is not what it should be.
#include "apps/boot/counters_file.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <fcntl.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "platform/log.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// An appliance, as far as its name and its counters go.
struct Running {
  NameLock lock;
  CountersFile file;

  Running(const std::string& directory, const std::string& name,
          const std::vector<CounterSet>& sets = {}) {
    CHECK(lock.take(directory, name).ok());
    CHECK(file.create(lock, sets).ok());
  }
  CountersLayout& layout() { return file.layout(); }
  void publish() { file.publish(); }
};

// Locks all of `path`, as any process can that may read it: by fcntl and by flock.
Fd lock_to_read(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  CHECK(fd.is_open());
  LONGS_EQUAL(0, fcntl(fd.number(), F_OFD_SETLK, &lock));
  LONGS_EQUAL(0, flock(fd.number(), LOCK_SH | LOCK_NB));
  return fd;
}

// What two services count.
struct HitCounters {
  Counter hits;
  Counter held_bytes;
};
void describe(CounterTable& table, HitCounters& counters) {
  table.counter("hits", counters.hits, "requests", "Gets that found a value.");
  table.gauge("held_bytes", counters.held_bytes, "bytes", "What values take.");
}
struct alignas(kCacheLineBytes) FeedCounters {
  Counter lost;
};
void describe(CounterTable& table, FeedCounters& counters) {
  table.counter("lost", counters.lost, "packets", "Never came.");
}
struct TimeCounters {
  Histogram answers;
  Counter asked;
};
void describe(CounterTable& table, TimeCounters& counters) {
  table.histogram("answers", counters.answers, "ns", "Until the answer.");
  table.counter("asked", counters.asked, "requests", "All.");
}
const std::vector<CounterSet> kSets = {
    {"cache", "gets", "", sizeof(HitCounters), described_counters<HitCounters>()},
    {"relay", "feeds", "a", sizeof(FeedCounters), described_counters<FeedCounters>()},
    {"relay", "feeds", "b", sizeof(FeedCounters), described_counters<FeedCounters>()}};

}  // namespace

TEST_GROUP(CountersFile) {
  char root[64] = "/tmp/bedplate-counters-XXXXXX";
  std::string directory;
  uint64_t file_bytes_ = 0;

  void setup() override {
    CHECK(mkdtemp(root) != nullptr);
    directory = std::string(root) + "/run";
  }
  // Whatever a test leaves in it makes this fail.
  void teardown() override { LONGS_EQUAL(0, rmdir(root)); }

  std::string path(const std::string& name) { return directory + "/" + name + ".stats"; }
  static bool exists(const std::string& which) { return access(which.c_str(), F_OK) == 0; }

  static void unmap(const CountersSnapshot& snapshot) {
    close(snapshot.fd);
    munmap(const_cast<CountersLayout*>(snapshot.layout), snapshot.layout->file_bytes);
  }

  // A file as a crashed appliance leaves it: nobody holds its lock.
  void leave_behind(const std::string& name, uint64_t bytes, uint64_t magic, uint32_t version) {
    mkdir(directory.c_str(), 0755);
    const Fd fd(open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    LONGS_EQUAL(0, ftruncate(fd.number(), static_cast<off_t>(bytes)));
    if (bytes < sizeof(CountersLayout)) return;
    void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.number(), 0);
    auto* layout = static_cast<CountersLayout*>(mapping);
    layout->registrations.set(77);
    layout->version = version;
    layout->file_bytes = bytes;
    layout->magic.store(magic, std::memory_order_release);
    munmap(mapping, bytes);
  }
  void remove_all(const std::string& name) {
    unlink(path(name).c_str());
    rmdir(directory.c_str());
  }

  void check_unreadable(const std::string& name, const char* answer) {
    const Result<CountersSnapshot> opened = open_counters(directory, name);
    CHECK(!opened.ok());
    STRCMP_EQUAL(answer, opened.error().answer);
    CHECK(opened.error().cure[0] != '\0');
  }
};

TEST(CountersFile, AReaderSeesWhatTheApplianceWrites) {
  Running file(directory, "demo");
  file.layout().registrations.set(5);
  file.publish();
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  const CountersLayout& seen = *opened.value().layout;
  CHECK(opened.value().is_running);
  STRCMP_EQUAL("demo", seen.appliance.text);
  LONGS_EQUAL(getpid(), seen.pid);
  CHECK_EQUAL(5, seen.registrations.read());
  file.layout().registrations.add(1);  // it is live
  CHECK_EQUAL(6, seen.registrations.read());
  unmap(opened.value());
}

// The reader knows no service: all that it shows stands in the file.
TEST(CountersFile, DescribesTheCountersOfServices) {
  Running running(directory, "demo", kSets);
  auto* gets = std::construct_at(static_cast<HitCounters*>(running.file.values(kSets[0])));
  auto* feed_b = std::construct_at(static_cast<FeedCounters*>(running.file.values(kSets[2])));
  gets->hits.set(3);
  gets->held_bytes.set(1 << 20);
  feed_b->lost.set(7);
  running.publish();
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  const CountersSnapshot& seen = opened.value();
  std::string text;
  for (const CounterSetRecord& set : seen.sets()) {
    text += std::string(set.owner.view()) + "." + set.name.text + "[" + set.instance.text + "]\n";
    for (const CounterRecord& counter : seen.counters(set)) {
      const bool is_gauge = counter.kind == static_cast<uint32_t>(CounterKind::kGauge);
      text += std::string(counter.name) + (is_gauge ? " gauge " : " counter ") +
              std::to_string(seen.value(set, counter)) + " " + counter.unit + ": " + counter.help +
              "\n";
    }
  }
  STRCMP_EQUAL("cache.gets[]\n"
               "hits counter 3 requests: Gets that found a value.\n"
               "held_bytes gauge 1048576 bytes: What values take.\n"
               "relay.feeds[a]\n"
               "lost counter 0 packets: Never came.\n"
               "relay.feeds[b]\n"
               "lost counter 7 packets: Never came.\n",
               text.c_str());
  // Each struct has lines of its own: no two shards write to one.
  for (const CounterSet& set : kSets) {
    LONGS_EQUAL(0, reinterpret_cast<uintptr_t>(running.file.values(set)) % kCacheLineBytes);
  }
  unmap(seen);
}

TEST(CountersFile, AHistogramIsReadAsOneAlsoFromACopyOfTheFile) {
  const std::vector<CounterSet> sets = {
      {"relay", "times", "", sizeof(TimeCounters), described_counters<TimeCounters>()}};
  const std::string copy = std::string(root) + "/copy";
  {
    Running running(directory, "demo", sets);
    auto* times = std::construct_at(static_cast<TimeCounters*>(running.file.values(sets[0])));
    for (uint64_t ns = 1; ns <= 100; ++ns) times->answers.add(ns * 1000);
    times->asked.set(100);
    running.publish();
    const std::string command = "cp " + path("demo") + " " + copy;
    LONGS_EQUAL(0, std::system(command.c_str()));
  }
  Result<CountersSnapshot> opened = open_counters_file(copy);
  CHECK(opened.ok());
  const CountersSnapshot& seen = opened.value();
  CHECK_FALSE(seen.is_running);
  const CounterSetRecord& set = seen.sets()[0];
  const Histogram& answers = seen.histogram(set, seen.counters(set)[0]);
  CHECK_EQUAL(100, answers.count());
  const uint64_t median = answers.percentile(0.5);
  CHECK(median >= 50'000 && median <= 50'000 + 50'000 / 16);
  CHECK_EQUAL(100, seen.value(set, seen.counters(set)[1]));
  unmap(seen);
  LONGS_EQUAL(0, unlink(copy.c_str()));
}

// Whatever the records say, a reader stays inside the file.
TEST(CountersFile, RecordsThatLeadOutOfTheFileAreNotFollowed) {
  const auto spoiled = [this](auto&& spoil) {
    Running running(directory, "demo", kSets);
    auto* begin = reinterpret_cast<std::byte*>(&running.layout());
    spoil(running.layout(),
          reinterpret_cast<CounterSetRecord*>(begin + running.layout().sets_offset()),
          reinterpret_cast<CounterRecord*>(begin + running.layout().records_offset()));
    running.publish();
    check_unreadable("demo", "the file is not complete, or of another version");
    running.layout().file_bytes = file_bytes_;  // which it is unmapped by
  };
  {
    Running running(directory, "demo", kSets);
    file_bytes_ = running.layout().file_bytes;
  }
  using Layout = CountersLayout;
  using Set = CounterSetRecord;
  using Record = CounterRecord;
  spoiled([](Layout& layout, Set*, Record*) { layout.file_bytes += 4096; });
  spoiled([](Layout& layout, Set*, Record*) { layout.set_count = ~0U; });
  spoiled([](Layout& layout, Set*, Record*) { layout.record_count = ~0U; });
  spoiled([](Layout&, Set* sets, Record*) { sets[1].first = 4; });
  spoiled([](Layout&, Set* sets, Record*) { sets[1].count = ~0U; });
  spoiled([](Layout&, Set* sets, Record*) { sets[1].values = ~uint64_t{0} - 7; });
  spoiled([](Layout&, Set* sets, Record*) { sets[1].values += 4; });
  spoiled([](Layout&, Set*, Record* records) { records[3].offset = ~7U; });
  spoiled([](Layout&, Set*, Record* records) { records[3].offset = 4; });
  // A histogram takes more than is there, and what is none of the kinds nobody can read.
  spoiled([](Layout&, Set*, Record* records) { records[3].kind = 2; });
  spoiled([](Layout&, Set*, Record* records) { records[3].kind = 3; });
}

TEST(CountersFile, BeginsZeroedAndOnPagesOfItsOwn) {
  Running file(directory, "demo");
  CHECK_EQUAL(0, file.layout().registrations_after_seal.read());
  CHECK_EQUAL(0, file.layout().registrations.read());
  CHECK_EQUAL(0, file.layout().owner_count);
  CHECK_EQUAL(0, reinterpret_cast<uintptr_t>(&file.layout()) % kCacheLineBytes);
}

TEST(CountersFile, TheOnlyOneNeedsNoName) {
  Running file(directory, "demo");
  file.publish();
  Result<CountersSnapshot> opened = open_counters(directory, "");
  CHECK(opened.ok());
  STRCMP_EQUAL("demo", opened.value().layout->appliance.text);
  unmap(opened.value());
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
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  {
    NameLock lock;
    CHECK(lock.take(directory, "demo").ok());
    CHECK(check_counters_file(lock).ok());
  }
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  CHECK_EQUAL(77, opened.value().layout->registrations.read());
  unmap(opened.value());
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
  CHECK(!exists(directory));  // the last one out
}

TEST(CountersFile, AFileThatCannotBeMadeIsRefused) {
  mkdir(directory.c_str(), 0755);
  mkdir(path("demo").c_str(), 0755);  // something else has its name
  {
    NameLock lock;
    CountersFile file;
    CHECK(lock.take(directory, "demo").ok());
    const Result<void> made = file.create(lock);
    CHECK(!made.ok());
    STRCMP_EQUAL(("making the counters file " + path("demo")).c_str(), made.error().doing);
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

// Others may read the counters of an appliance that crashed, and so lock them.
TEST(CountersFile, ALockOfAReaderKeepsNobodyFromStarting) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  const Fd held = lock_to_read(path("demo"));
  Running file(directory, "demo");
  file.publish();
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  CHECK(opened.value().is_running);
  unmap(opened.value());
}

TEST(CountersFile, ALockOfAReaderMakesNoCrashedOneRun) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  const Fd held = lock_to_read(path("demo"));
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running);
  unmap(opened.value());
  remove_all("demo");
}

// A reader has what a crashed one left before its eyes while the next one starts.
TEST(CountersFile, WhatACrashedOneLeftDoesNotChangeUnderItsReader) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  Running file(directory, "demo");
  CHECK_EQUAL(77, opened.value().layout->registrations.read());
  unmap(opened.value());
}

// On a full file system, a mapping alone would end the process at its first touch.
BP_PROBE(CountersFileOnAFullFileSystem) {
  if (geteuid() != 0) test::probe_skipped("a file system of its own takes root");
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    test::probe_skipped("this process may not mount anything");
  }
  BP_PROBE_CHECK(mount("none", "/tmp", "tmpfs", 0, "size=64k") == 0);
  NameLock lock;
  BP_PROBE_CHECK(lock.take("/tmp/run", "demo").ok());
  const Result<void> checked = check_counters_file(lock);
  BP_PROBE_CHECK(!checked.ok());
  BP_PROBE_CHECK(std::strstr(checked.error().doing, "KiB for the counters file /tmp/run/demo") !=
                 nullptr);
  BP_PROBE_CHECK(std::strcmp(checked.error().answer, std::strerror(ENOSPC)) == 0);
  BP_PROBE_CHECK(std::strstr(checked.error().cure, "df /tmp/run") != nullptr);
  CountersFile file;
  const Result<void> made = file.create(lock);
  BP_PROBE_CHECK(!made.ok());
  BP_PROBE_CHECK(std::strcmp(made.error().doing, checked.error().doing) == 0);
  BP_PROBE_CHECK(std::strcmp(made.error().answer, checked.error().answer) == 0);
  BP_PROBE_CHECK(access("/tmp/run/demo.stats", F_OK) != 0);
}

TEST(CountersFile, AFullFileSystemIsAnErrorAndNothingIsLeft) {
  BP_CHECK_PROBE(CountersFileOnAFullFileSystem);
}

TEST(CountersFile, SignalsDoNotKeepItFromBeingMade) {
  const std::string on_tmpfs = "/dev/shm/bedplate-counters-" + std::to_string(getpid());
  const test::Ended ended = test::run_forked([&] {
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often = {{0, 20}, {0, 20}};
    setitimer(ITIMER_REAL, &often, nullptr);
    for (int i = 0; i < 500; ++i) {
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

TEST(CountersFile, NobodyThereIsSaidWithACure) {
  const Result<CountersSnapshot> no_directory = open_counters(directory, "");
  CHECK(!no_directory.ok());
  STRCMP_EQUAL("No such file or directory", no_directory.error().answer);
  mkdir(directory.c_str(), 0755);
  check_unreadable("", "none is running");
  check_unreadable("demo", "No such file or directory");
  rmdir(directory.c_str());
}

TEST(CountersFile, AmongSeveralANameIsAskedForAndTheyAreNamed) {
  Running one(directory, "one");
  Running two(directory, "two");
  const Result<CountersSnapshot> opened = open_counters(directory, "");
  CHECK(!opened.ok());
  CHECK(opened.error().kind == ErrorKind::kConfiguration);
  CHECK(std::strncmp(opened.error().answer, "there are 2: ", 13) == 0);
  CHECK(std::strstr(opened.error().answer, "one") != nullptr);
  CHECK(std::strstr(opened.error().answer, "two") != nullptr);
}

TEST(CountersFile, BeforeItIsPublishedNobodyReadsIt) {
  Running file(directory, "demo");
  check_unreadable("demo", "the file is not complete, or of another version");
}

TEST(CountersFile, AFileOfAnotherSizeOrVersionIsNotRead) {
  leave_behind("demo", 100, 0, 0);
  check_unreadable("demo", "the file has fewer bytes than this version writes");
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion + 1);
  check_unreadable("demo", "the file is not complete, or of another version");
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic + 1, kCountersVersion);
  check_unreadable("demo", "the file is not complete, or of another version");
  remove_all("demo");
}

TEST(CountersFile, WhatACrashedOneLeftIsReadAsSuch) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running);
  CHECK_EQUAL(77, opened.value().layout->registrations.read());
  unmap(opened.value());
  remove_all("demo");
}

TEST(CountersFile, TheNextOneBeginsAnewWhereACrashedOneStopped) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  {
    Running file(directory, "demo");
    CHECK_EQUAL(0, file.layout().registrations.read());
    check_unreadable("demo", "the file is not complete, or of another version");
    file.publish();
    Result<CountersSnapshot> opened = open_counters(directory, "demo");
    CHECK(opened.ok());
    CHECK(opened.value().is_running);
    unmap(opened.value());
  }
  CHECK(!exists(directory));
}
