// The counters file: who writes, who reads, and what is said when it is not what it should be.
#include "apps/boot/counters_file.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
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

#include "apps/boot/counters_reader.h"
#include "apps/boot/runtime_counters.h"
#include "platform/log.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

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

// An appliance, as far as its name and its counters go.
struct Running {
  NameLock lock;
  CountersFile file;

  Running(const std::string& directory, const std::string& name,
          const std::vector<CounterSet>& sets = kSets) {
    CHECK(lock.take(directory, name).ok());
    CHECK(file.create(lock, sets).ok());
  }
  HitCounters& gets() { return *static_cast<HitCounters*>(file.values(kSets[0])); }
  void publish() { file.publish(); }
};

uint64_t hits_of(const CountersReader& reader) { return *reader.sets()[0].read("hits"); }

}  // namespace

TEST_GROUP(CountersFile) {
  char root[64] = "/tmp/bedplate-counters-XXXXXX";
  std::string directory;

  void setup() override {
    CHECK(mkdtemp(root) != nullptr);
    directory = std::string(root) + "/run";
  }
  // Whatever a test leaves in it makes this fail.
  void teardown() override { LONGS_EQUAL(0, rmdir(root)); }

  std::string path(const std::string& name) { return directory + "/" + name + ".stats"; }
  static bool exists(const std::string& which) { return access(which.c_str(), F_OK) == 0; }

  // A file as a crashed appliance leaves it: nobody holds its lock. `spoil` changes it first.
  void leave_behind(const std::string& name, const std::function<void(CountersHeader&)>& spoil =
                                                 [](CountersHeader&) {}) {
    const std::string aside = std::string(root) + "/aside";
    {
      Running crashed(directory, name);
      crashed.gets().hits.set(77);
      crashed.publish();
      const uint64_t bytes = crashed.file.header().file_bytes;
      spoil(crashed.file.header());
      LONGS_EQUAL(0, std::system(("cp " + path(name) + " " + aside).c_str()));
      crashed.file.header().file_bytes = bytes;  // which it is unmapped by
    }
    mkdir(directory.c_str(), 0755);
    LONGS_EQUAL(0, rename(aside.c_str(), path(name).c_str()));
  }
  void remove_all(const std::string& name) {
    unlink(path(name).c_str());
    rmdir(directory.c_str());
  }

  void check_unreadable(const std::string& name, const char* answer) {
    const Result<CountersReader> opened = CountersReader::open(directory, name);
    CHECK(!opened.ok());
    STRCMP_EQUAL(answer, opened.error().answer);
    CHECK(opened.error().cure[0] != '\0');
  }
};

TEST(CountersFile, AReaderSeesWhatTheApplianceWrites) {
  Running file(directory, "demo");
  file.gets().hits.set(5);
  file.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(opened.value().is_running());
  CHECK(opened.value().appliance() == "demo");
  LONGS_EQUAL(getpid(), opened.value().pid());
  CHECK_EQUAL(5, hits_of(opened.value()));
  file.gets().hits.add(1);  // it is live
  CHECK_EQUAL(6, hits_of(opened.value()));
}

// The reader knows no service: all that it shows stands in the file.
TEST(CountersFile, DescribesTheCountersOfServices) {
  Running running(directory, "demo");
  running.gets().hits.set(3);
  running.gets().held_bytes.set(1 << 20);
  static_cast<FeedCounters*>(running.file.values(kSets[2]))->lost.set(7);
  running.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  std::string text;
  for (const SeenSet& set : opened.value().sets()) {
    text += std::string(set.owner) + "." + std::string(set.name) + "[" +
            std::string(set.instance) + "]\n";
    for (const SeenCounter& counter : set.counters) {
      text += std::string(counter.name) + " " + std::string(counter.kind) + " " +
              std::to_string(counter.read()) + " " + std::string(counter.unit) + ": " +
              std::string(counter.help) + "\n";
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
  // Instances of one set share their descriptions.
  LONGS_EQUAL(3, running.file.header().counters.count);
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
  {
    Result<CountersReader> opened = CountersReader::open_file(copy);
    CHECK(opened.ok());
    CHECK_FALSE(opened.value().is_running());
    const SeenSet set = opened.value().sets()[0];
    const SeenCounter& answers = set.counters[0];
    CHECK(answers.is_histogram());
    CHECK_EQUAL(100, Histogram::count_of(answers.values));
    const uint64_t median = Histogram::percentile_of(answers.values, 0.5);
    CHECK(median >= 50'000 && median <= 50'000 + 50'000 / 16);
    CHECK_EQUAL(100, *set.read("asked"));
  }
  LONGS_EQUAL(0, unlink(copy.c_str()));
}

namespace {

CounterSetRecord& set_record(CountersHeader& header, uint32_t index) {
  auto* begin = reinterpret_cast<std::byte*>(&header);
  return reinterpret_cast<CounterSetRecord*>(begin + header.sets.offset)[index];
}
CounterRecord& counter_record(CountersHeader& header, uint32_t index) {
  auto* begin = reinterpret_cast<std::byte*>(&header);
  return reinterpret_cast<CounterRecord*>(begin + header.counters.offset)[index];
}

}  // namespace

// Whatever the records say, a reader stays inside the file.
TEST(CountersFile, RecordsThatLeadOutOfTheFileAreNotFollowed) {
  const auto spoiled = [this](const std::function<void(CountersHeader&)>& spoil) {
    leave_behind("demo", spoil);
    check_unreadable("demo", "its records lead out of the file");
    remove_all("demo");
  };
  using Header = CountersHeader;
  spoiled([](Header& header) { header.file_bytes += 4096; });
  spoiled([](Header& header) { header.sets.count = ~0U; });
  spoiled([](Header& header) { header.sets.record_bytes = 8; });
  spoiled([](Header& header) { header.sets.record_bytes += 4; });
  spoiled([](Header& header) { header.counters.count = ~0U; });
  spoiled([](Header& header) { header.counters.offset = ~uint64_t{0} - 7; });
  spoiled([](Header& header) { header.labels.count = ~0U; });
  spoiled([](Header& header) { set_record(header, 1).first = 4; });
  spoiled([](Header& header) { set_record(header, 1).count = ~0U; });
  spoiled([](Header& header) { set_record(header, 1).label_count = 1; });
  spoiled([](Header& header) { set_record(header, 1).values = ~uint64_t{0} - 7; });
  spoiled([](Header& header) { set_record(header, 1).values += 4; });
  spoiled([](Header& header) { counter_record(header, 2).offset = ~7U; });
  spoiled([](Header& header) { counter_record(header, 2).offset = 4; });
  spoiled([](Header& header) { counter_record(header, 2).bytes = 1 << 20; });
  spoiled([](Header& header) { counter_record(header, 2).bytes = 0; });
}

// A newer build has kinds, units and longer records that this one does not know.
TEST(CountersFile, WhatThisBuildDoesNotKnowIsHandedOnAsItIs) {
  leave_behind("demo", [](CountersHeader& header) {
    std::strcpy(counter_record(header, 0).kind, "sketch");
    std::strcpy(counter_record(header, 1).unit, "parsecs");
    std::memset(counter_record(header, 2).name, 'x', sizeof CounterRecord::name);  // without an end
  });
  {
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    const std::vector<SeenSet> sets = opened.value().sets();
    CHECK(sets[0].counters[0].kind == "sketch");
    CHECK_FALSE(sets[0].counters[0].is_number());
    CHECK_EQUAL(77, sets[0].counters[0].read());
    CHECK(sets[0].counters[1].unit == "parsecs");
    LONGS_EQUAL(sizeof CounterRecord::name, sets[1].counters[0].name.size());
  }
  remove_all("demo");
}

TEST(CountersFile, RecordsMayGrowAtTheirEnds) {
  leave_behind("demo", [](CountersHeader& header) {
    // The only record that is looked at lies twice as far apart from a next one.
    header.counters.count = 1;
    header.counters.record_bytes *= 2;
    header.sets.count = 1;
    set_record(header, 0).count = 1;
  });
  {
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    CHECK_EQUAL(77, hits_of(opened.value()));
  }
  remove_all("demo");
}

TEST(CountersFile, StatesAndFlagsAreReadAsWords) {
  struct Words {
    Counter state;
    Counter flags;
  } words;
  CounterTable table(&words);
  table.state("state", words.state, "waiting|connected|cut off", "How far.");
  table.flags("flags", words.flags, "READ|WRITE", "What for.");
  const std::vector<CounterSet> sets = {{"", "peer", "a", sizeof(Words), table.take()}};
  Running running(directory, "demo", sets);
  running.publish();
  auto* values = static_cast<Words*>(running.file.values(sets[0]));
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  const SeenSet set = opened.value().sets()[0];
  const auto told = [&](uint64_t state, uint64_t flags) {
    values->state.set(state);
    values->flags.set(flags);
    return *set.counters[0].read_words() + "/" + *set.counters[1].read_words();
  };
  STRCMP_EQUAL("waiting/none", told(0, 0).c_str());
  STRCMP_EQUAL("cut off/READ WRITE", told(2, 3).c_str());
  STRCMP_EQUAL("3/WRITE 4", told(3, 6).c_str());  // of a newer build
}

// The owners of heap memory are found out by and by.
TEST(CountersFile, SpareSetsAreThereOnceTheyAreTaken) {
  CounterSet spare = {"", "gets", "", sizeof(HitCounters), described_counters<HitCounters>(), {},
                      true};
  Running running(directory, "demo", {spare, spare});
  running.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  LONGS_EQUAL(0, opened.value().sets().size());
  running.file.take_spare<HitCounters>("gets", "mine")->hits.set(4);
  LONGS_EQUAL(1, opened.value().sets().size());
  CHECK(opened.value().sets()[0].instance == "mine");
  CHECK_EQUAL(4, hits_of(opened.value()));
  CHECK(running.file.take_spare<HitCounters>("gets", "yours") != nullptr);
  POINTERS_EQUAL(nullptr, running.file.take_spare<HitCounters>("gets", "theirs"));
}

TEST(CountersFile, LabelsAreSaidBeforeItIsPublished) {
  const std::vector<CounterSet> sets = {{"", "shard", "main", sizeof(HitCounters),
                                         described_counters<HitCounters>(),
                                         {{"cpu", "3"}, {"backend"}}}};
  Running running(directory, "demo", sets);
  running.file.set_label("shard", "main", "backend", "epoll");
  running.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  const auto labels = opened.value().sets()[0].labels;
  LONGS_EQUAL(2, labels.size());
  CHECK(labels[0].first == "cpu" && labels[0].second == "3");
  CHECK(labels[1].first == "backend" && labels[1].second == "epoll");
}

// Every word of the runtime's structs is one that is described: none is counted and not shown.
TEST(CountersFile, NoCounterOfTheRuntimeIsForgotten) {
  for (const CounterSet& set : all_runtime_counters()) {
    uint64_t described_bytes = 0;
    for (const CounterDescription& counter : set.counters) {
      CHECK_TEXT(!counter.unit.empty() && !counter.help.empty(), counter.name.c_str());
      CHECK_TEXT(counter.help.size() < sizeof CounterRecord::help, counter.name.c_str());
      CHECK_TEXT(counter.words.size() < sizeof CounterRecord::words, counter.name.c_str());
      described_bytes += bytes_of(counter.kind);
    }
    // Those on cache lines of their own have padding.
    uint64_t counted_bytes = set.bytes;
    if (set.name == "shard") counted_bytes = sizeof(EventLoopCounters) + sizeof(SocketCounters);
    if (set.name == "source") counted_bytes = sizeof(Histogram);
    if (set.name == "group") counted_bytes = sizeof(ShmCounters) + sizeof GroupCounters::members;
    if (set.name == "shard_group") counted_bytes = sizeof(ShmCounters);
    if (set.name == "verbs") counted_bytes = sizeof(VerbsCounters) + 2 * sizeof(Counter);
    CHECK_EQUAL_TEXT(counted_bytes, described_bytes, set.name.c_str());
  }
}

TEST(CountersFile, BeginsZeroedAndOnPagesOfItsOwn) {
  Running file(directory, "demo");
  CHECK_EQUAL(0, file.gets().hits.read());
  CHECK_EQUAL(0, reinterpret_cast<uintptr_t>(&file.file.header()) % kCacheLineBytes);
}

TEST(CountersFile, TheOnlyOneNeedsNoName) {
  Running file(directory, "demo");
  file.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "");
  CHECK(opened.ok());
  CHECK(opened.value().appliance() == "demo");
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
  leave_behind("demo");
  const Fd held = lock_to_read(path("demo"));
  Running file(directory, "demo");
  file.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(opened.value().is_running());
}

TEST(CountersFile, ALockOfAReaderMakesNoCrashedOneRun) {
  leave_behind("demo");
  const Fd held = lock_to_read(path("demo"));
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running());
  remove_all("demo");
}

// A reader has what a crashed one left before its eyes while the next one starts.
TEST(CountersFile, WhatACrashedOneLeftDoesNotChangeUnderItsReader) {
  leave_behind("demo");
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  Running file(directory, "demo");
  CHECK_EQUAL(77, hits_of(opened.value()));
}

// On a full file system, a mapping alone would end the process at its first touch.
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
  BP_PROBE_CHECK(std::strstr(checked.error().doing, "KiB for the counters file /tmp/run/demo") !=
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
  const Result<CountersReader> no_directory = CountersReader::open(directory, "");
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
  const Result<CountersReader> opened = CountersReader::open(directory, "");
  CHECK(!opened.ok());
  CHECK(opened.error().kind == ErrorKind::kConfiguration);
  CHECK(std::strncmp(opened.error().answer, "there are 2: ", 13) == 0);
  CHECK(std::strstr(opened.error().answer, "one") != nullptr);
  CHECK(std::strstr(opened.error().answer, "two") != nullptr);
}

TEST(CountersFile, BeforeItIsPublishedNobodyReadsIt) {
  Running file(directory, "demo");
  check_unreadable("demo", "the file is not complete, or none of counters");
}

TEST(CountersFile, AFileOfAnotherSizeOrFormatIsNotRead) {
  leave_behind("demo");
  LONGS_EQUAL(0, truncate(path("demo").c_str(), 100));
  check_unreadable("demo", "the file has fewer bytes than a header of counters");
  leave_behind("demo", [](CountersHeader& header) { header.format = kCountersFormat + 1; });
  check_unreadable("demo", "it has format 2, this program reads 1");
  leave_behind("demo", [](CountersHeader& header) { header.magic.store(kCountersMagic + 1); });
  check_unreadable("demo", "the file is not complete, or none of counters");
  remove_all("demo");
}

TEST(CountersFile, WhatACrashedOneLeftIsReadAsSuch) {
  leave_behind("demo");
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running());
  CHECK_EQUAL(77, hits_of(opened.value()));
  remove_all("demo");
}

TEST(CountersFile, TheNextOneBeginsAnewWhereACrashedOneStopped) {
  leave_behind("demo");
  {
    Running file(directory, "demo");
    CHECK_EQUAL(0, file.gets().hits.read());
    check_unreadable("demo", "the file is not complete, or none of counters");
    file.publish();
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    CHECK(opened.value().is_running());
    }
  CHECK(!exists(directory));
}
