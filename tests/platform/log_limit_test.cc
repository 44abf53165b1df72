#include "platform/log_limit.h"

#include <string>

#include "platform/clock.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::StderrCapture;

TEST_GROUP(LogLimit){};

TEST(LogLimit, LetsSoManyPassAndCountsTheRest) {
  StderrCapture capture;
  LogLimit limit(3, 3600 * kNsPerSecond);
  for (int i = 0; i < 10; ++i) CHECK(limit.try_pass("them") == (i < 3));
  limit.lift("them");
  CHECK(limit.due_ns() > monotonic_ns() && limit.due_ns() != UINT64_MAX);
  STRCMP_EQUAL("", capture.finish().c_str());
}

TEST(LogLimit, SaysHowManyWereHeldBackWhenThePeriodIsOver) {
  StderrCapture capture;
  LogLimit limit(1, 20 * kNsPerMs);
  CHECK(limit.try_pass("them"));
  uint64_t held_back = 0;
  // A period in which this thread gets no core holds nothing back.
  while (held_back == 0) {
    CHECK(limit.due_ns() == UINT64_MAX);
    while (!limit.try_pass("them")) ++held_back;
  }
  STRCMP_EQUAL(("bedplate: warning: " + std::to_string(held_back) +
                " more messages about them within 20 ms were not logged\n")
                   .c_str(),
               capture.finish().c_str());
}

TEST(LogLimit, SaysItToATimerToo) {
  StderrCapture capture;
  LogLimit limit(1, 20 * kNsPerMs);
  while (limit.try_pass("them")) {
  }
  while (monotonic_ns() < limit.due_ns() && limit.due_ns() != UINT64_MAX) limit.lift("them");
  limit.lift("them");
  CHECK(limit.due_ns() == UINT64_MAX);
  STRCMP_EQUAL("bedplate: warning: 1 more messages about them within 20 ms were not logged\n",
               capture.finish().c_str());
}

TEST(LogLimit, OncePerSecondLetsNoMorePass) {
  OncePerSecond limit;
  const uint64_t begin_ns = monotonic_ns();
  CHECK(limit.try_pass());
  uint64_t more = 0;
  for (int i = 0; i < 1000; ++i) more += limit.try_pass() ? 1 : 0;
  CHECK(more <= (monotonic_ns() - begin_ns) / kNsPerSecond);
}

// With a limit of 0 no period would begin, so the messages held back would never be reported.
TEST(LogLimit, OfNoMessagesIsAProgrammingError) {
  BP_CHECK_DIES("count_max > 0", LogLimit(0).lift("them"));
}

TEST(LogLimit, IsValidAllTheWay) {
  StderrCapture capture;
  LogLimit limit(2, 5 * kNsPerMs);
  bool is_valid = limit.is_valid();
  for (int i = 0; i < 5; ++i) {
    limit.try_pass("them");
    is_valid = is_valid && limit.is_valid();
  }
  while (limit.due_ns() != UINT64_MAX) limit.lift("them");
  CHECK(is_valid && limit.is_valid());
  capture.finish();
}
