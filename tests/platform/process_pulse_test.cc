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
  // Waits so long from one beat to the next.
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
  // A reader's clock that is behind: it looked before the beat.
  CHECK_EQUAL(0, pulse.still_ms(now_ns - kNsPerMs));
}

TEST(ProcessPulse, WhatIsLateIsStill) {
  wait_ms(0);
  // The same before the next beat as after it: who asks first when all go on does not matter.
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
  pulse.rest(now_ns);  // the wait that ends here was too long, too
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
