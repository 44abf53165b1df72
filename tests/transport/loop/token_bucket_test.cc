// Token buckets by a clock that the test sets: exact rates, debts, changes, and jumps of the clock.
#include "transport/loop/token_bucket.h"

#include <algorithm>
#include <random>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kNow = 5 * kNsPerSecond;

bool try_take(TokenBucket& bucket, uint64_t now_ns, uint64_t cost) {
  if (!bucket.has(now_ns, cost)) return false;
  bucket.take(cost);
  return true;
}

// Takes one by one, each as soon as the bucket says that it may. Returns when the last one went.
uint64_t take_in_turn(TokenBucket& bucket, uint64_t now_ns, uint64_t count, uint64_t cost) {
  for (uint64_t i = 0; i < count; ++i) {
    if (!bucket.has(now_ns, cost)) {
      now_ns = bucket.ready_ns(cost);
      CHECK(!bucket.has(now_ns - 1, cost));
      CHECK(bucket.has(now_ns, cost));
    }
    bucket.take(cost);
  }
  return now_ns;
}

}  // namespace

TEST_GROUP(TokenBucket) { TokenBucket bucket; };

TEST(TokenBucket, HasNoLimitAtFirst) {
  CHECK(!bucket.is_limited());
  for (int i = 0; i < 1000; ++i) CHECK(try_take(bucket, 0, TokenBucket::kCostMax));
}

TEST(TokenBucket, GivesItsBurstAndThenItsRate) {
  bucket.set(kNow, 100, kNsPerSecond);
  for (int i = 0; i < 100; ++i) CHECK(try_take(bucket, kNow, 1));
  CHECK(!bucket.has(kNow, 1));
  CHECK(bucket.ready_ns(1) == kNow + 10 * kNsPerMs);
  CHECK(!bucket.has(kNow + 10 * kNsPerMs - 1, 1));
  CHECK(try_take(bucket, kNow + 10 * kNsPerMs, 1));
  // Idle time fills the bucket with the burst, and no more.
  for (int i = 0; i < 100; ++i) CHECK(try_take(bucket, kNow + 3600 * kNsPerSecond, 1));
  CHECK(!bucket.has(kNow + 3600 * kNsPerSecond, 1));
}

// The burst of a low rate would be less than one token: it is one.
TEST(TokenBucket, TakesAnyRateFromOneASecond) {
  for (const uint64_t rate : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{7}, uint64_t{999},
                              uint64_t{999'999'937}, TokenBucket::kRateMax}) {
    TokenBucket each;
    each.set(kNow, rate, 0);
    CHECK(try_take(each, kNow, 1));
    CHECK(!each.has(kNow, 1));
    const uint64_t wait_ns = (kNsPerSecond + rate - 1) / rate;
    CHECK(each.ready_ns(1) == kNow + wait_ns);
    CHECK(try_take(each, kNow + wait_ns, 1));
  }
}

// 3 a second is no whole number of nanoseconds: a rounded interval would be a token short or over
// after a day.
TEST(TokenBucket, DoesNotDrift) {
  bucket.set(kNow, 3, 0);
  CHECK(try_take(bucket, kNow, 1));
  constexpr uint64_t kDayTokens = 3 * 86'400;
  CHECK(take_in_turn(bucket, kNow, kDayTokens, 1) == kNow + 86'400 * kNsPerSecond);
  // Nor do takers that want a full bucket or more.
  TokenBucket other;
  other.set(kNow, 7, kNsPerSecond);
  CHECK(try_take(other, kNow, 10));
  CHECK(take_in_turn(other, kNow, 7 * 1000, 10) == kNow + 10'000 * kNsPerSecond);
}

// Loops have other work, too.
TEST(TokenBucket, ATakerThatComesLateDoesNotLowerTheRate) {
  bucket.set(kNow, 10, 0);
  CHECK(try_take(bucket, kNow, 1));
  uint64_t now_ns = kNow;
  for (int i = 0; i < 1000; ++i) {
    now_ns = bucket.ready_ns(1) + TokenBucket::kLateNs;
    CHECK(try_take(bucket, now_ns, 1));
  }
  CHECK(now_ns == kNow + 100 * kNsPerSecond + TokenBucket::kLateNs);
}

TEST(TokenBucket, LetsWhatExceedsTheBurstGoInDebt) {
  bucket.set(kNow, 1000, kNsPerSecond);  // a burst of 1000
  CHECK(try_take(bucket, kNow, 5000));   // the bucket is full
  CHECK(!bucket.has(kNow, 0));           // it owes 4000
  CHECK(bucket.ready_ns(0) == kNow + 4 * kNsPerSecond);
  CHECK(bucket.ready_ns(1) == kNow + 4 * kNsPerSecond + kNsPerMs);
  CHECK(bucket.ready_ns(5000) == kNow + 5 * kNsPerSecond);
  // Over a long time the rate is kept all the same.
  CHECK(take_in_turn(bucket, kNow, 100, 5000) == kNow + 500 * kNsPerSecond);
}

TEST(TokenBucket, TheLargestCostAtTheLowestRateEnds) {
  bucket.set(kNow, 1, 0);
  CHECK(try_take(bucket, kNow, TokenBucket::kCostMax));
  const uint64_t ready_ns = bucket.ready_ns(TokenBucket::kCostMax);
  CHECK(ready_ns == kNow + TokenBucket::kCostMax * kNsPerSecond);
  CHECK(bucket.has(ready_ns, TokenBucket::kCostMax));
}

TEST(TokenBucket, TwoChangesInARowBothHold) {
  bucket.set(kNow, 1000, kNsPerSecond);
  bucket.set(kNow, 10, kNsPerSecond);  // no more than the new burst is left
  for (int i = 0; i < 10; ++i) CHECK(try_take(bucket, kNow, 1));
  CHECK(!bucket.has(kNow, 1));
  bucket.set(kNow, 100, kNsPerSecond);  // a change gives nothing
  CHECK(!bucket.has(kNow, 1));
  CHECK(bucket.ready_ns(1) == kNow + 10 * kNsPerMs);
}

// Otherwise whoever changes a rate often would lift it.
TEST(TokenBucket, AChangeKeepsADebtAndAnEndForgivesIt) {
  bucket.set(kNow, 1000, kNsPerSecond);
  CHECK(try_take(bucket, kNow, 3000));
  bucket.set(kNow, 2000, kNsPerSecond);
  CHECK(bucket.ready_ns(0) == kNow + kNsPerSecond);
  bucket.set(kNow, 0, kNsPerSecond);
  CHECK(!bucket.is_limited());
  CHECK(try_take(bucket, kNow, TokenBucket::kCostMax));
  bucket.set(kNow, 2000, kNsPerSecond);
  CHECK(bucket.has(kNow, 2000));
}

// Tokens that came at the old rate count when the rate changes.
TEST(TokenBucket, AChangeCountsTheTimeBefore) {
  bucket.set(kNow, 10, kNsPerSecond);
  CHECK(try_take(bucket, kNow, 10));
  bucket.set(kNow + kNsPerSecond / 2, 1, 3600 * kNsPerSecond);
  CHECK(bucket.has(kNow + kNsPerSecond / 2, 5));
  CHECK(!bucket.has(kNow + kNsPerSecond / 2, 6));
}

TEST(TokenBucket, AClockThatGoesBackAddsNothingAndTakesNothing) {
  bucket.set(kNow, 1000, kNsPerSecond);
  CHECK(try_take(bucket, kNow, 1000));
  CHECK(!bucket.has(0, 1));
  CHECK(bucket.ready_ns(1) == kNsPerMs);  // by the clock as it is now
  CHECK(try_take(bucket, kNsPerMs, 1));
}

TEST(TokenBucket, AJumpOfTheClockFillsItAtMost) {
  for (const uint64_t rate : {uint64_t{1}, TokenBucket::kRateMax}) {
    TokenBucket each;
    each.set(0, rate, kNsPerSecond);
    CHECK(try_take(each, 0, TokenBucket::kCostMax));
    CHECK(each.has(UINT64_MAX, rate == 1 ? 1 : TokenBucket::kCostMax));
    CHECK(each.is_valid());
  }
}

TEST(TokenBucket, NothingIsReadyAfterTheEndOfTheClock) {
  bucket.set(UINT64_MAX, 1, 0);
  CHECK(try_take(bucket, UINT64_MAX, 1));
  CHECK(!bucket.has(UINT64_MAX, 1));
  CHECK(bucket.ready_ns(1) == UINT64_MAX);
}

// Compared with a model that adds up all that has come and all that was taken.
TEST(TokenBucket, AgreesWithASum) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  for (int round = 0; round < 100; ++round) {
    const uint64_t rate = 1 + (random() >> (24 + random() % 40));
    const uint64_t burst_ns = random() % kNsPerSecond;
    using Wide = __int128;
    const Wide full = std::max(Wide{rate} * burst_ns, Wide{kNsPerSecond});
    Wide left = full;
    uint64_t now_ns = kNow;
    TokenBucket each;
    each.set(now_ns, rate, burst_ns);
    for (int i = 0; i < 200; ++i) {
      const uint64_t step_ns = random() >> (30 + random() % 34);
      now_ns += step_ns;
      left = std::min(full + Wide{rate} * TokenBucket::kLateNs, left + Wide{step_ns} * rate);
      const uint64_t cost = (random() >> (32 + random() % 32));
      const bool is_enough = left >= std::min(full, Wide{cost} * kNsPerSecond);
      CHECK_TEXT(each.has(now_ns, cost) == is_enough, seed.text());
      CHECK_TEXT(is_enough == (each.ready_ns(cost) <= now_ns), seed.text());
      if (!is_enough) continue;
      each.take(cost);
      left -= Wide{cost} * kNsPerSecond;
    }
  }
}
