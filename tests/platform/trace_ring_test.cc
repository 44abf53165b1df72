#include "platform/trace_ring.h"

#include <vector>

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(TraceRing) {
  std::vector<TraceRecord> records = std::vector<TraceRecord>(3);
  TraceRing ring;

  void setup() override { ring.create(records); }
};

TEST(TraceRing, ARecordHasWhatTheRequestCarried) {
  RequestTrace trace;
  trace.begin(1'000'000);
  trace.pass(1, 1'000'640);
  trace.pass(3, 1'006'400);
  ring.write(2, trace, {.handle = 77, .bytes = 4096, .subject = 5, .kind = 1});
  const TraceRecord& record = records[0];
  CHECK_EQUAL(1, record.number);
  CHECK_EQUAL(1'000'000, record.begin_ns);
  CHECK_EQUAL(77, record.handle);
  CHECK_EQUAL(4096, record.bytes);
  LONGS_EQUAL(5, record.subject);
  LONGS_EQUAL(2, record.source);
  LONGS_EQUAL(1, record.kind);
  CHECK_EQUAL(10, record.passed[0]);
  CHECK_EQUAL(kTraceNotPassed, record.passed[1]);
  CHECK_EQUAL(100, record.passed[2]);
}

TEST(TraceRing, TheOldestGivesWay) {
  RequestTrace trace;
  trace.begin(1);
  for (uint64_t handle = 1; handle <= 4; ++handle) ring.write(0, trace, {.handle = handle});
  CHECK_EQUAL(4, records[0].number);
  CHECK_EQUAL(4, records[0].handle);
  CHECK_EQUAL(2, records[1].number);
  CHECK_EQUAL(3, records[2].number);
}

// A trace that begins again has passed no station.
TEST(TraceRing, BeginningForgetsWhatWas) {
  RequestTrace trace;
  trace.begin(0);
  for (uint32_t station = 1; station <= kTraceStationMax; ++station) trace.pass(station, 6400);
  trace.begin(100);
  ring.write(0, trace, {});
  for (const uint32_t passed : records[0].passed) CHECK_EQUAL(kTraceNotPassed, passed);
}

// A time from another shard may be a loop round older and then counts as 0. Times are limited to
// 4.5 minutes.
TEST(TraceRing, TimesStayWithinTheirBounds) {
  RequestTrace trace;
  trace.begin(1'000'000);
  trace.pass(1, 999'000);
  trace.pass(2, ~uint64_t{0});
  ring.write(0, trace, {});
  CHECK_EQUAL(0, records[0].passed[0]);
  CHECK_EQUAL(kTraceNotPassed - 1, records[0].passed[1]);
}

TEST(TraceRing, AWriterWithoutARingWritesNothing) {
  RequestTrace trace;
  trace.begin(1);
  TraceWriter().write(trace, {});
  TraceWriter(&ring, 7).write(trace, {});
  LONGS_EQUAL(7, records[0].source);
}

TEST(TraceRing, KnowsWhetherItIsValid) {
  CHECK_FALSE(TraceRing().is_valid());
  RequestTrace trace;
  trace.begin(1);
  for (int i = 0; i < 4; ++i) ring.write(0, trace, {});
  CHECK(ring.is_valid());
  records[0].number = 1;  // as if other code had written there
  CHECK_FALSE(ring.is_valid());
#if BP_DEBUG
  BP_CHECK_DIES("is_valid() before a change", ring.write(0, trace, {}));
#endif
}
