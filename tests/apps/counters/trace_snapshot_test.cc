// A reader's snapshot of the last requests: it has only complete records, even while shards write,
// and follows no record out of the file.
#include "apps/counters/trace_snapshot.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <unistd.h>

#include "platform/clock.h"
#include "tests/apps/counters/counters_file_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

const TraceShape kShape = {.record_count = 4,
                           .shards = {"net", "disk"},
                           .sources = {{"cache", {"get|put", "received|done|sent", {"a", "b"}}},
                                       {"relay", {"packet", "received|sent", {"feed"}}}}};

// An appliance that traces.
struct Traced {
  NameLock lock;
  CountersFile file;
  TraceRing rings[2];

  explicit Traced(const std::string& directory, const TraceShape& shape = kShape) {
    CHECK(lock.take(directory, "demo").ok());
    CHECK(file.create(lock, kSets, shape).ok());
    for (uint32_t i = 0; i < 2 && shape.record_count > 0; ++i) {
      rings[i].create(file.trace_records(i));
    }
    file.publish();
  }
  void write(uint32_t shard, uint8_t source, const TraceSubject& subject,
             std::initializer_list<uint64_t> after_ns) {
    RequestTrace trace;
    trace.begin(1'000'000);
    uint32_t station = 0;
    for (const uint64_t ns : after_ns) {
      if (++station; ns > 0) trace.pass(station, 1'000'000 + ns);
    }
    rings[shard].write(source, trace, subject);
  }
};

std::string text_of(const SeenRequest& request) {
  std::string text = request.shard + " " + std::to_string(request.number) + " " + request.service +
                     " " + request.kind + " " + request.subject + " " +
                     std::to_string(request.handle) + " " + std::to_string(request.bytes) + ":";
  for (const SeenStation& station : request.stations) {
    text += " " + station.name + " " + std::to_string(station.after_ns);
  }
  return text;
}

TraceSnapshot seen(const std::string& directory) {
  auto opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  auto taken = opened.value().traces();
  CHECK(taken.ok());
  return taken.take();
}

std::string answer(const std::string& directory) {
  auto opened = CountersReader::open(directory, "demo");
  if (!opened.ok()) return opened.error().answer;
  auto taken = opened.value().traces();
  CHECK(!taken.ok());
  CHECK(taken.error().cure[0] != '\0');
  return taken.error().answer;
}

}  // namespace

TEST_GROUP_BASE(TraceSnapshot, CountersFileFixture){};

TEST(TraceSnapshot, RequestsHaveTheWordsOfTheirServices) {
  Traced traced(directory);
  CHECK(seen(directory).requests().empty());
  traced.write(0, 0, {.handle = 9, .bytes = 512, .subject = 1, .kind = 1}, {640, 6400});
  traced.write(1, 1, {.handle = 1, .bytes = 188}, {128});
  traced.write(1, 0, {.subject = 2, .kind = 7}, {0, 64});  // the service has no words for them
  traced.write(1, 9, {}, {64});                            // no service has the number 9
  const TraceSnapshot snapshot = seen(directory);
  LONGS_EQUAL(3, snapshot.requests().size());
  STRCMP_EQUAL("net 1 cache put b 9 512: received 0 done 640 sent 6400",
               text_of(snapshot.requests()[0]).c_str());
  STRCMP_EQUAL("disk 1 relay packet feed 1 188: received 0 sent 128",
               text_of(snapshot.requests()[1]).c_str());
  STRCMP_EQUAL("disk 2 cache 7  0 0: received 0 sent 64", text_of(snapshot.requests()[2]).c_str());
  LONGS_EQUAL(2, snapshot.requests()[0].slowest());
  CHECK_EQUAL(6400, snapshot.requests()[0].total_ns());
  CHECK(snapshot.services() == std::vector<std::string>({"cache", "relay"}));
}

TEST(TraceSnapshot, TheLastOnesAreThereInTheirOrder) {
  Traced traced(directory);
  for (uint64_t handle = 1; handle <= 6; ++handle) traced.write(0, 0, {.handle = handle}, {64});
  const TraceSnapshot snapshot = seen(directory);
  LONGS_EQUAL(4, snapshot.requests().size());
  for (uint64_t i = 0; i < 4; ++i) {
    CHECK_EQUAL(i + 3, snapshot.requests()[i].number);
    CHECK_EQUAL(i + 3, snapshot.requests()[i].handle);
  }
}

// The counters of a file with traces are read like those of any other file.
TEST(TraceSnapshot, CountersAreReadWithoutThem) {
  Traced traced(directory);
  static_cast<HitCounters*>(traced.file.values(kSets[0]))->hits.set(3);
  auto opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK_EQUAL(3, hits_of(opened.value()));
}

TEST(TraceSnapshot, AFileWithoutRequestsSaysSo) {
  TraceShape none = kShape;
  none.record_count = 0;
  Traced traced(directory, none);
  STRCMP_EQUAL("it has none", answer(directory).c_str());
}

TEST(TraceSnapshot, WhatWasToldIsNotToldAgain) {
  Traced traced(directory);
  for (uint64_t handle = 1; handle <= 3; ++handle) traced.write(0, 0, {.handle = handle}, {64});
  traced.write(1, 0, {}, {64});
  auto opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  auto taken = opened.value().traces({{"net", 2}});
  CHECK(taken.ok());
  LONGS_EQUAL(2, taken.value().requests().size());
  CHECK_EQUAL(3, taken.value().requests()[0].number);
  STRCMP_EQUAL("disk", taken.value().requests()[1].shard.c_str());
}

// A thread overwrites the records while they are read. The snapshots have only records that were
// written so, and leave out only records that were overwritten meanwhile.
TEST(TraceSnapshot, ARecordThatChangesIsNotTold) {
  TraceShape shape = kShape;
  shape.record_count = 1024;
  Traced traced(directory, shape);
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> begun{0};
  std::thread writer([&] {
    for (uint32_t i = 1; !ends; ++i) {
      begun.store(i);
      RequestTrace trace;
      trace.begin(i);
      for (uint32_t station = 1; station <= 2; ++station) trace.pass(station, i + uint64_t{i} * 64);
      traced.rings[0].write(0, trace, {.handle = i, .bytes = i, .subject = 0, .kind = 0});
      for (int pause = 0; pause < 20; ++pause) cpu_relax();
    }
  });
  auto opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  uint64_t torn = 0;
  uint64_t left_out = 0;
  ToldRequests told;
  uint64_t& last = told["net"];
  for (int look = 0; look < 400 || last == 0; ++look) {
    auto taken = opened.value().traces(told);
    if (!taken.ok()) break;
    const uint64_t begun_by_now = begun.load();
    for (const SeenRequest& request : taken.value().requests()) {
      const bool is_whole = request.handle == request.number && request.bytes == request.number &&
                            request.begin_ns == request.number &&
                            request.stations[1].after_ns == request.number * 64 &&
                            request.stations[2].after_ns == request.number * 64;
      torn += is_whole ? 0 : 1;
      // The writer may have overwritten the record before this one, the last omitted record.
      const bool was_written_over = request.number - 1 + shape.record_count <= begun_by_now;
      left_out += request.number == last + 1 || was_written_over ? 0 : 1;
      last = request.number;
    }
  }
  ends = true;
  writer.join();
  CHECK(last > 0);
  CHECK_EQUAL(0, torn);
  CHECK_EQUAL(0, left_out);
}

TEST(TraceSnapshot, RecordsThatLeadOutOfTheFileAreNotFollowed) {
  const auto spoiled = [this](const std::function<void(CountersHeader&)>& spoil) {
    Traced traced(directory);
    traced.write(0, 0, {}, {64});
    CountersHeader& header = traced.file.header();
    const auto kept = std::make_unique<std::byte[]>(header.file_bytes);
    const uint64_t bytes = header.file_bytes;
    std::memcpy(kept.get(), static_cast<void*>(&header), bytes);
    spoil(header);
    STRCMP_EQUAL("its records point outside the file", answer(directory).c_str());
    std::memcpy(static_cast<void*>(&header), kept.get(), bytes);
  };
  using Header = CountersHeader;
  const auto ring = [](Header& header) -> TraceRingRecord& {
    return *reinterpret_cast<TraceRingRecord*>(reinterpret_cast<std::byte*>(&header) +
                                               header.rings.offset);
  };
  const auto source = [](Header& header) -> TraceSourceRecord& {
    return *reinterpret_cast<TraceSourceRecord*>(reinterpret_cast<std::byte*>(&header) +
                                                 header.sources.offset);
  };
  spoiled([](Header& header) { header.rings.offset = 0; });
  spoiled([](Header& header) { header.rings.offset = ~uint64_t{0} - 7; });
  spoiled([](Header& header) { header.rings.count = ~0U; });
  spoiled([](Header& header) { header.rings.record_bytes = 8; });
  spoiled([](Header& header) { header.sources.count = ~0U; });
  spoiled([](Header& header) { header.sources.offset = 8; });
  spoiled([](Header& header) { header.subjects.count = 1 << 20; });
  spoiled([](Header& header) { header.subjects.count = 2; });
  spoiled([&](Header& header) { ring(header).records.count = 1 << 20; });
  spoiled([&](Header& header) { ring(header).records.offset = 64; });
  spoiled([&](Header& header) { ring(header).records.offset = ~uint64_t{0} - 7; });
  spoiled([&](Header& header) { ring(header).records.record_bytes = 32; });
  spoiled([&](Header& header) {  // two rings overlap
    (&ring(header))[1].records.offset = ring(header).records.offset;
  });
  spoiled([&](Header& header) { source(header).first_subject = ~0U; });
  spoiled([&](Header& header) { source(header).subject_count = 4; });
}

TEST(TraceSnapshot, AFileThatIsCutIsRefused) {
  Traced traced(directory);
  auto opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  const auto bytes = static_cast<off_t>(traced.file.header().file_bytes);
  LONGS_EQUAL(0, truncate(path("demo").c_str(), bytes - 64));
  auto taken = opened.value().traces();
  CHECK(!taken.ok());
  STRCMP_EQUAL(("it was truncated: " + std::to_string(bytes - 64) + " of its " +
                std::to_string(bytes) + " bytes are left")
                   .c_str(),
               taken.error().answer);
  LONGS_EQUAL(0, truncate(path("demo").c_str(), bytes));
}
