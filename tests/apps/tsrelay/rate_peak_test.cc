// The largest rate of a count.
#include "apps/tsrelay/rate_peak.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(RatePeak) { relay::RatePeak rate; };

TEST(RatePeak, IsOverASecondOrMore) {
  CHECK_EQUAL(0, rate.look(1000, 5 * kNsPerSecond));
  CHECK_EQUAL(0, rate.look(9000, 5 * kNsPerSecond + kNsPerSecond / 2));
  CHECK_EQUAL(10'000, rate.look(11'000, 6 * kNsPerSecond));
  CHECK_EQUAL(10'000, rate.look(12'000, 8 * kNsPerSecond));
  CHECK_EQUAL(20'000, rate.look(52'000, 10 * kNsPerSecond));
}

TEST(RatePeak, BeginsAnewWhenTimeGoesBack) {
  rate.look(0, 9 * kNsPerSecond);
  CHECK_EQUAL(0, rate.look(1'000'000, 3 * kNsPerSecond));
  CHECK_EQUAL(500, rate.look(1'000'500, 4 * kNsPerSecond));
}
