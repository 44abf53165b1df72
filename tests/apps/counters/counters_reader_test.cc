// The reader of counters files of this build and of others, live and after a crash.
#include "apps/counters/counters_reader.h"

#include <algorithm>
#include <cstdlib>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/apps/counters/counters_file_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

struct TimeCounters {
  Histogram answers;
  Counter asked;
};
void describe(CounterTable& table, TimeCounters& counters) {
  table.histogram("answers", counters.answers, "ns", "Until the answer.");
  table.counter("asked", counters.asked, "requests", "All.");
}

}  // namespace

TEST_GROUP_BASE(CountersReader, CountersFileFixture){};

TEST(CountersReader, AReaderSeesWhatTheApplianceWrites) {
  Running file(directory, "demo");
  file.gets().hits.set(5);
  file.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(opened.value().is_running());
  CHECK(opened.value().appliance() == "demo");
  LONGS_EQUAL(getpid(), opened.value().pid());
  CHECK_EQUAL(5, hits_of(opened.value()));
  file.gets().hits.add(1);  // the reader sees later changes
  CHECK_EQUAL(6, hits_of(opened.value()));
}

// The reader knows no service: all names and descriptions come from the file.
TEST(CountersReader, DescribesTheCountersOfServices) {
  Running running(directory, "demo");
  running.gets().hits.set(3);
  running.gets().held_bytes.set(1 << 20);
  static_cast<FeedCounters*>(running.file.values(kSets[2]))->lost.set(7);
  running.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  const CountersSnapshot snapshot = snapshot_of(opened.value());
  std::string text;
  for (const SeenSet& set : snapshot.sets()) {
    text += std::string(set.owner) + "." + std::string(set.name) + "[" + std::string(set.instance) +
            "]\n";
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
  // Each struct has cache lines of its own, so no two shards write to the same line.
  for (const CounterSet& set : kSets) {
    LONGS_EQUAL(0, reinterpret_cast<uintptr_t>(running.file.values(set)) % kCacheLineBytes);
  }
  // Instances of one set share their descriptions.
  LONGS_EQUAL(3, running.file.header().counters.count);
}

TEST(CountersReader, AHistogramIsReadAsOneAlsoFromACopyOfTheFile) {
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
    const CountersSnapshot snapshot = snapshot_of(opened.value());
    const SeenSet& set = snapshot.sets()[0];
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

// A reader stays inside the file, whatever the records say.
TEST(CountersReader, RecordsThatLeadOutOfTheFileAreNotFollowed) {
  const auto spoiled = [this](const std::function<void(CountersHeader&)>& spoil) {
    leave_behind("demo", spoil);
    check_unreadable("demo", "its records point outside the file");
    remove_all("demo");
  };
  using Header = CountersHeader;
  spoiled([](Header& header) { header.file_bytes -= 8; });
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

// Each set may claim all counter records. A file with more counters than any appliance has is
// refused.
TEST(CountersReader, MoreCountersThanAnybodyHasAreNotBelieved) {
  const CounterSet set = kSets[0];
  const std::string copy = std::string(root) + "/copy";
  {
    Running running(directory, "demo");
    running.publish();
    CountersHeader& header = running.file.header();
    const uint64_t bytes = header.file_bytes;
    Fd fd(open(copy.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    // 2,000 sets share the same 1,000 counter records, which are copies of the first record.
    constexpr uint32_t kCount = 1000;
    const uint64_t sets_at = bytes;
    const uint64_t counters_at = sets_at + 2 * kCount * sizeof(CounterSetRecord);
    const uint64_t end = counters_at + kCount * sizeof(CounterRecord);
    LONGS_EQUAL(static_cast<ssize_t>(bytes), pwrite(fd.number(), &header, bytes, 0));
    CounterRecord one = counter_record(header, 0);
    CounterSetRecord all{OwnerName("a"), OwnerName("b"), OwnerName("c"), 0, kCount, 0, 0, 0};
    all.is_there.store(1);
    for (uint32_t i = 0; i < 2 * kCount; ++i) {
      pwrite(fd.number(), &all, sizeof all, static_cast<off_t>(sets_at + i * sizeof all));
    }
    for (uint32_t i = 0; i < kCount; ++i) {
      pwrite(fd.number(), &one, sizeof one, static_cast<off_t>(counters_at + i * sizeof one));
    }
    const CounterRecords sets{sets_at, 2 * kCount, sizeof(CounterSetRecord)};
    const CounterRecords counters{counters_at, kCount, sizeof(CounterRecord)};
    pwrite(fd.number(), &end, sizeof end, offsetof(CountersHeader, file_bytes));
    pwrite(fd.number(), &sets, sizeof sets, offsetof(CountersHeader, sets));
    pwrite(fd.number(), &counters, sizeof counters, offsetof(CountersHeader, counters));
    const auto opened = CountersReader::open_file(copy);
    CHECK(!opened.ok());
    STRCMP_EQUAL("its records point outside the file", opened.error().answer);
  }
  LONGS_EQUAL(0, unlink(copy.c_str()));
}

// If a file is cut or changed while a reader has it open, the reader reports a clear error, at
// every length.
TEST(CountersReader, AFileThatChangesUnderItsReaderIsRefused) {
  leave_behind("demo");
  {
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    const uint64_t bytes = std::filesystem::file_size(path("demo"));
    const auto answer = [&]() -> std::string {
      const auto taken = opened.value().snapshot();
      CHECK(!taken.ok());
      CHECK(taken.error().cure[0] != '\0');
      return taken.error().answer;
    };
    for (uint64_t left = bytes - 1; left >= sizeof(CountersHeader);
         left -= std::min<uint64_t>(left, 512)) {
      LONGS_EQUAL(0, truncate(path("demo").c_str(), static_cast<off_t>(left)));
      STRCMP_EQUAL(("it was truncated: " + std::to_string(left) + " of its " +
                    std::to_string(bytes) + " bytes are left")
                       .c_str(),
                   answer().c_str());
    }
    LONGS_EQUAL(0, truncate(path("demo").c_str(), 10));
    STRCMP_EQUAL("the file is shorter than the header of a counters file", answer().c_str());
    LONGS_EQUAL(0, truncate(path("demo").c_str(), off_t{1} << 40));
    STRCMP_EQUAL("it is larger than a counters file can be", answer().c_str());
    LONGS_EQUAL(0, truncate(path("demo").c_str(), 0));
    LONGS_EQUAL(0, truncate(path("demo").c_str(), off_t{1} << 40));  // a foreign file of zeros
    STRCMP_EQUAL("the file is incomplete, or not a counters file", answer().c_str());
  }
  remove_all("demo");
}

// A snapshot does not change with the file.
TEST(CountersReader, ASnapshotStaysAsItWas) {
  leave_behind("demo");
  {
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    const CountersSnapshot snapshot = snapshot_of(opened.value());
    LONGS_EQUAL(0, truncate(path("demo").c_str(), 0));
    CHECK_EQUAL(77, *snapshot.sets()[0].read("hits"));
    CHECK(snapshot.appliance() == "demo");
  }
  remove_all("demo");
}

// A newer build may have kinds and units that this build does not know.
TEST(CountersReader, WhatThisBuildDoesNotKnowIsHandedOnAsItIs) {
  leave_behind("demo", [](CountersHeader& header) {
    std::strcpy(counter_record(header, 0).kind, "sketch");
    std::strcpy(counter_record(header, 1).unit, "parsecs");
    std::memset(counter_record(header, 2).name, 'x', sizeof CounterRecord::name);  // without a NUL
  });
  {
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    const CountersSnapshot snapshot = snapshot_of(opened.value());
    const std::vector<SeenSet>& sets = snapshot.sets();
    CHECK(sets[0].counters[0].kind == "sketch");
    CHECK_FALSE(sets[0].counters[0].is_number());
    CHECK_EQUAL(77, sets[0].counters[0].read());
    CHECK(sets[0].counters[1].unit == "parsecs");
    LONGS_EQUAL(sizeof CounterRecord::name, sets[1].counters[0].name.size());
  }
  remove_all("demo");
}

TEST(CountersReader, RecordsMayGrowAtTheirEnds) {
  leave_behind("demo", [](CountersHeader& header) {
    // Only one record is read. The records are twice as long.
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

// The records of an older build have no column. The bytes there belong to the next record.
TEST(CountersReader, RecordsOfAnOlderBuildAreShorter) {
  leave_behind("demo", [](CountersHeader& header) {
    std::strcpy(counter_record(header, 0).column, "none");
    header.counters.count = 1;
    header.counters.record_bytes = kCounterRecordBytesMin;
    header.sets.count = 1;
    set_record(header, 0).count = 1;
  });
  {
    Result<CountersReader> opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    CHECK_EQUAL(77, hits_of(opened.value()));
    CHECK(snapshot_of(opened.value()).sets()[0].counters[0].column.empty());
  }
  remove_all("demo");
}

TEST(CountersReader, StatesAndFlagsAreReadAsWords) {
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
  const auto told = [&](uint64_t state, uint64_t flags) {
    values->state.set(state);
    values->flags.set(flags);
    const CountersSnapshot snapshot = snapshot_of(opened.value());
    const SeenSet& set = snapshot.sets()[0];
    return *set.counters[0].read_words() + "/" + *set.counters[1].read_words();
  };
  STRCMP_EQUAL("waiting/none", told(0, 0).c_str());
  STRCMP_EQUAL("cut off/READ WRITE", told(2, 3).c_str());
  STRCMP_EQUAL("3/WRITE 4", told(3, 6).c_str());  // values of a newer build
}

// Spare sets are for owners of heap memory, which become known at run time.
TEST(CountersReader, SpareSetsAreThereOnceTheyAreTaken) {
  CounterSet spare = {"", "gets", "", sizeof(HitCounters), described_counters<HitCounters>(),
                      {}, true};
  Running running(directory, "demo", {spare, spare});
  running.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  LONGS_EQUAL(0, snapshot_of(opened.value()).sets().size());
  running.file.take_spare<HitCounters>("gets", "mine")->hits.set(4);
  const CountersSnapshot snapshot = snapshot_of(opened.value());
  LONGS_EQUAL(1, snapshot.sets().size());
  CHECK(snapshot.sets()[0].instance == "mine");
  CHECK_EQUAL(4, hits_of(opened.value()));
  CHECK(running.file.take_spare<HitCounters>("gets", "yours") != nullptr);
  POINTERS_EQUAL(nullptr, running.file.take_spare<HitCounters>("gets", "theirs"));
}

TEST(CountersReader, LabelsAreSaidBeforeItIsPublished) {
  const std::vector<CounterSet> sets = {{"",
                                         "shard",
                                         "main",
                                         sizeof(HitCounters),
                                         described_counters<HitCounters>(),
                                         {{"cpu", "3"}, {"backend"}}}};
  Running running(directory, "demo", sets);
  running.file.set_label("shard", "main", "backend", "epoll");
  running.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  const CountersSnapshot snapshot = snapshot_of(opened.value());
  const auto labels = snapshot.sets()[0].labels;
  LONGS_EQUAL(2, labels.size());
  CHECK(labels[0].first == "cpu" && labels[0].second == "3");
  CHECK(labels[1].first == "backend" && labels[1].second == "epoll");
}

TEST(CountersReader, TheOnlyOneNeedsNoName) {
  Running file(directory, "demo");
  file.publish();
  Result<CountersReader> opened = CountersReader::open(directory, "");
  CHECK(opened.ok());
  CHECK(opened.value().appliance() == "demo");
}

TEST(CountersReader, ALockOfAReaderMakesNoCrashedOneRun) {
  leave_behind("demo");
  const Fd held = lock_to_read(path("demo"));
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running());
  remove_all("demo");
}

TEST(CountersReader, NobodyThereIsSaidWithACure) {
  const Result<CountersReader> no_directory = CountersReader::open(directory, "");
  CHECK(!no_directory.ok());
  STRCMP_EQUAL("No such file or directory", no_directory.error().answer);
  mkdir(directory.c_str(), 0755);
  check_unreadable("", "none is running");
  check_unreadable("demo", "No such file or directory");
  rmdir(directory.c_str());
}

TEST(CountersReader, AmongSeveralANameIsAskedForAndTheyAreNamed) {
  Running one(directory, "one");
  Running two(directory, "two");
  const Result<CountersReader> opened = CountersReader::open(directory, "");
  CHECK(!opened.ok());
  CHECK(opened.error().kind == ErrorKind::kConfiguration);
  CHECK(std::strncmp(opened.error().answer, "there are 2: ", 13) == 0);
  CHECK(std::strstr(opened.error().answer, "one") != nullptr);
  CHECK(std::strstr(opened.error().answer, "two") != nullptr);
}

TEST(CountersReader, BeforeItIsPublishedNobodyReadsIt) {
  Running file(directory, "demo");
  check_unreadable("demo", "the file is incomplete, or not a counters file");
}

TEST(CountersReader, AFileOfAnotherSizeOrFormatIsNotRead) {
  leave_behind("demo");
  LONGS_EQUAL(0, truncate(path("demo").c_str(), 100));
  check_unreadable("demo", "the file is shorter than the header of a counters file");
  leave_behind("demo", [](CountersHeader& header) { header.format = kCountersFormat + 1; });
  check_unreadable("demo", "it has format 3, but this program reads 2");
  leave_behind("demo", [](CountersHeader& header) { header.magic.store(kCountersMagic + 1); });
  check_unreadable("demo", "the file is incomplete, or not a counters file");
  remove_all("demo");
}

TEST(CountersReader, WhatACrashedOneLeftIsReadAsSuch) {
  leave_behind("demo");
  Result<CountersReader> opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running());
  CHECK_EQUAL(77, hits_of(opened.value()));
  remove_all("demo");
}
