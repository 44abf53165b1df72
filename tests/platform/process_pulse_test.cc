#include "platform/process_pulse.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kPeriodNs = 10 * kNsPerMs;

}  // namespace

TEST_GROUP(ProcessPulse) {
  ProcessPulse pulse;
  uint64_t now_ns = 5 * kNsPerSecond;

  void setup() override { pulse.set_period(kPeriodNs); }
  // Waits for `time_ms`, then beats.
  void wait_ms(uint64_t time_ms) {
    now_ns += time_ms * kNsPerMs;
    pulse.beat(now_ns);
  }
};

TEST(ProcessPulse, BeatsInTimeAreNoStandstill) {
  CHECK_EQUAL(0, pulse.still_ms(now_ns));
  wait_ms(0);
  for (uint64_t time_ms : {10, 1, 10, 9}) wait_ms(time_ms);
  CHECK_EQUAL(0, pulse.still_ms(now_ns));
  CHECK_EQUAL(0, pulse.still_ms(now_ns + kPeriodNs));
  // A reader that read its clock before the beat.
  CHECK_EQUAL(0, pulse.still_ms(now_ns - kNsPerMs));
}

TEST(ProcessPulse, WhatIsLateIsStill) {
  wait_ms(0);
  // The result is the same before the next beat and after it: after a standstill, a reader may run
  // before the beating thread.
  CHECK_EQUAL(690, pulse.still_ms(now_ns + 700 * kNsPerMs));
  wait_ms(700);
  CHECK_EQUAL(690, pulse.still_ms(now_ns));
  wait_ms(10);
  CHECK_EQUAL(690, pulse.still_ms(now_ns));
  wait_ms(20);
  CHECK_EQUAL(700, pulse.still_ms(now_ns));
}

TEST(ProcessPulse, AtRestItKnowsNothing) {
  wait_ms(0);
  wait_ms(30);
  now_ns += 30 * kNsPerMs;
  pulse.rest(now_ns);  // the wait that ends here was 20 ms too long
  CHECK_EQUAL(40, pulse.still_ms(now_ns));
  CHECK_EQUAL(40, pulse.still_ms(now_ns + kNsPerSecond));
  wait_ms(2000);
  CHECK_EQUAL(40, pulse.still_ms(now_ns));
}

TEST(ProcessPulse, ItsClockMayWrap) {
  // 2^31 ms are 24 days.
  now_ns = ((uint64_t{1} << 31) - 5) * kNsPerMs;
  wait_ms(0);
  wait_ms(30);
  CHECK_EQUAL(20, pulse.still_ms(now_ns));
  CHECK_EQUAL(25, pulse.still_ms(now_ns + 15 * kNsPerMs));
}
