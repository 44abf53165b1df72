// Packets leave at the pace of their PCRs, whatever their jitter on arrival.
#include "apps/tsrelay/pacer_datapath.h"

#include <vector>

#include "tests/apps/tsrelay/dice.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kBytes = 7 * kTsPacketBytes;

TsClock clock_at(uint64_t ns, uint32_t offset_bytes = 0) {
  return {true, ns * 27 / 1000 % kPcrModulus, offset_bytes, false};
}

}  // namespace

TEST_GROUP(Pacer) { Pacer pacer{50 * kMs}; };

TEST(Pacer, JitterIsTakenOut) {
  Dice dice;
  // A packet each ms, a PCR in each fifth packet, and 0 to 20 ms of jitter.
  std::vector<uint64_t> due;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t sent = i * kMs;
    const uint64_t came = 1'000 * kMs + sent + dice.below(20) * kMs;
    due.push_back(pacer.due_ns(i % 5 == 0 ? clock_at(sent) : TsClock{}, kBytes, came));
    CHECK(pacer.is_valid());
    CHECK(due.back() >= came);
  }
  LONGS_EQUAL(1, pacer.restart_count());
  for (size_t i = 10; i < due.size(); ++i) {
    const auto step = static_cast<double>(due[i] - due[i - 1]);
    DOUBLES_EQUAL(1e6, step, 0.3e6);  // a 256th of 20 ms at most, and roundings
  }
}

TEST(Pacer, TheOtherClockMayBeFasterForEver) {
  // 100 ppm, for an hour: 360 ms in all.
  uint64_t due = 0;
  uint64_t came = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint64_t sent = i * 36 * kMs;
    came = 1'000 * kMs + sent - sent / 10'000;
    due = pacer.due_ns(clock_at(sent), kBytes, came);
  }
  LONGS_EQUAL(1, pacer.restart_count());
  DOUBLES_EQUAL(50e6, static_cast<double>(due - came), 2e6);
}

TEST(Pacer, APcrWithinThePacketCountsFromItsPosition) {
  pacer.due_ns(clock_at(0), kBytes, 0);
  pacer.due_ns(clock_at(7 * kMs), kBytes, 7 * kMs);  // 1 ms for each packet of 188 bytes
  const uint64_t due = pacer.due_ns(clock_at(17 * kMs, 3 * kTsPacketBytes), kBytes, 14 * kMs);
  DOUBLES_EQUAL(64e6, static_cast<double>(due), 0.2e6);
}

TEST(Pacer, ADiscontinuityBeginsALineAnew) {
  pacer.due_ns(clock_at(0), kBytes, 0);
  const uint64_t before = pacer.due_ns(clock_at(10 * kMs), kBytes, 10 * kMs);
  DOUBLES_EQUAL(60e6, static_cast<double>(before), 1e3);
  const uint64_t after = pacer.due_ns(clock_at(9'000'000 * kMs), kBytes, 20 * kMs);
  DOUBLES_EQUAL(70e6, static_cast<double>(after), 1e3);
  LONGS_EQUAL(2, pacer.restart_count());
  // The sender stops for a second, and then continues its PCRs without a gap.
  const uint64_t late = pacer.due_ns(clock_at(9'000'010 * kMs), kBytes, 1030 * kMs);
  DOUBLES_EQUAL(1080e6, static_cast<double>(late), 1e3);
  LONGS_EQUAL(3, pacer.restart_count());
}

TEST(Pacer, WithoutPcrsNothingIsHeldForEver) {
  for (uint64_t i = 0; i < 100; ++i) {
    LONGLONGS_EQUAL((i + 50) * kMs, pacer.due_ns({}, kBytes, i * kMs));
  }
  pacer.due_ns(clock_at(0), kBytes, 100 * kMs);
  pacer.due_ns(clock_at(10 * kMs), kBytes, 110 * kMs);
  for (uint64_t i = 0; i < 100'000; ++i) {
    CHECK(pacer.due_ns({}, kBytes, 110 * kMs + i) <= 260 * kMs + i);
  }
}

TEST(Pacer, AClockThatSaysTheSameTwiceTellsNothing) {
  uint64_t due = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t now = i * 10 * kMs;
    due = pacer.due_ns(clock_at(now), kBytes, now);
    const uint64_t again = pacer.due_ns(clock_at(now), kBytes, now + 5 * kMs);
    if (i > 1) DOUBLES_EQUAL(5e6, static_cast<double>(again - due), 0.1e6);
    CHECK(pacer.is_valid());
  }
  LONGS_EQUAL(1, pacer.restart_count());
}

TEST(Pacer, ALineEndsASecondBehindItsLastPcr) {
  for (uint64_t i = 0; i < 10; ++i) pacer.due_ns(clock_at(i * 10 * kMs), kBytes, i * 10 * kMs);
  // The stream is now four times as fast, without PCRs, so the line no longer shows its pace.
  uint64_t now = 100 * kMs;
  for (; now < 1080 * kMs; now += 10 * kMs) {
    for (int i = 0; i < 4; ++i) CHECK(pacer.due_ns({}, kBytes, now) <= now + 150 * kMs);
  }
  now += 100 * kMs;  // the due times so far have passed
  for (uint64_t i = 0; i < 10'000; ++i, now += 10 * kMs) {
    const uint64_t due = pacer.due_ns({}, kBytes, now);
    CHECK(due <= now + 150 * kMs);
    if (i > 20) LONGLONGS_EQUAL(now + 50 * kMs, due);
  }
  LONGS_EQUAL(1, pacer.restart_count());
}

TEST(Pacer, TheLineOfASenderEndsWithIt) {
  for (uint64_t i = 0; i < 10; ++i) pacer.due_ns(clock_at(i * 10 * kMs), kBytes, i * 10 * kMs);
  pacer.forget();
  CHECK(pacer.is_valid());
  LONGLONGS_EQUAL(200 * kMs, pacer.due_ns({}, kBytes, 150 * kMs));
  LONGLONGS_EQUAL(210 * kMs, pacer.due_ns(clock_at(99 * kMs), kBytes, 160 * kMs));
  LONGS_EQUAL(2, pacer.restart_count());
}
