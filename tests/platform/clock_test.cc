#include "platform/clock.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Clock){};

TEST(Clock, IsTheMonotonicClockInNanoseconds) {
  timespec before;
  clock_gettime(CLOCK_MONOTONIC, &before);
  const uint64_t now = monotonic_ns();
  timespec after;
  clock_gettime(CLOCK_MONOTONIC, &after);
  const auto in_ns = [](const timespec& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  };
  CHECK(in_ns(before) <= now);
  CHECK(now <= in_ns(after));
}

TEST(Clock, NeverGoesBackAndMovesOn) {
  const uint64_t start = monotonic_ns();
  uint64_t last = start;
  while (last == start) {
    cpu_relax();
    const uint64_t now = monotonic_ns();
    CHECK(now >= last);
    last = now;
  }
}
