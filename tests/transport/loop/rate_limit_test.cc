// Limits of rates on a loop with a test's clock: order, waits, changes, and that nothing polls.
#include "transport/loop/rate_limit_datapath.h"

#include <memory>
#include <random>
#include <vector>

#include "tests/support/seed.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Request : RateWaiter {
  uint64_t number = 0;
};

}  // namespace

TEST_GROUP(RateLimit) {
  uint64_t clock_ns = 1000 * kNsPerSecond;
  // Allocated separately, because CppUTest's operator new ignores the alignment.
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  RateLimitCounters counters;
  RateLimit limit;
  std::vector<uint64_t> went;
  std::vector<Request> requests = std::vector<Request>(1000);
  uint64_t next = 0;
  int asks_again_count = 0;  // how many of those that go ask at once for their next request

  void setup() override {
    EventLoopOptions options;
    options.test_clock_ns = &clock_ns;
    CHECK(loop->create(options).ok());
    loop->timers().reserve_more(1);
    const auto let_go = [](void* self, RateWaiter& waiter) noexcept {
      auto& its = *static_cast<TEST_GROUP_CppUTestGroupRateLimit*>(self);
      const uint64_t number = static_cast<Request&>(waiter).number;
      its.went.push_back(number);
      if (its.asks_again_count == 0) return;
      --its.asks_again_count;
      if (its.limit.try_pass(waiter, 0)) its.went.push_back(number);
    };
    limit.create(*loop, counters, let_go, this);
    went.reserve(requests.size());
  }
  // The next request, numbered from 0. Returns whether it goes at once.
  bool ask(uint64_t bytes = 0) {
    requests[next].number = next;
    const bool goes = limit.try_pass(requests[next], bytes);
    if (goes) went.push_back(next);
    ++next;
    CHECK(limit.is_valid());
    return goes;
  }
  // The time passes, and the loop runs as often as it has work. Returns the work.
  uint32_t pass(uint64_t ns) {
    clock_ns += ns;
    uint32_t all = 0;
    while (const uint32_t work = loop->run_round()) all += work;
    CHECK(limit.is_valid());
    return all;
  }
  void expect_went_in_order(uint64_t count) {
    CHECK_EQUAL(count, went.size());
    for (uint64_t i = 0; i < count; ++i) CHECK_EQUAL(i, went[i]);
  }
};

TEST(RateLimit, AllGoWithoutALimit) {
  for (int i = 0; i < 100; ++i) CHECK(ask(TokenBucket::kCostMax));
  CHECK_EQUAL(0, counters.wait_ns.count());
}

TEST(RateLimit, ThoseOverTheRateWaitInTheirOrder) {
  limit.set({.operations_per_second = 10});  // a burst of one
  CHECK(ask());
  for (int i = 0; i < 5; ++i) CHECK(!ask());
  CHECK_EQUAL(5, counters.waiting.read());
  for (uint64_t done = 2; done <= 6; ++done) {
    pass(100 * kNsPerMs - 1);
    expect_went_in_order(done - 1);
    pass(1);
    expect_went_in_order(done);
  }
  CHECK_EQUAL(0, counters.waiting.read());
  CHECK_EQUAL(5, counters.wait_ns.count());
  const uint64_t longest = counters.wait_ns.percentile(1.0);
  CHECK(longest >= 500 * kNsPerMs && longest <= 532 * kNsPerMs);
}

// A newcomer that could go by itself would overtake.
TEST(RateLimit, NobodyOvertakesOneThatWaits) {
  limit.set({.bytes_per_second = 1000, .burst_ns = kNsPerSecond});
  CHECK(ask(600));
  CHECK(!ask(600));
  CHECK(!ask(1));
  pass(200 * kNsPerMs);
  expect_went_in_order(2);
  pass(kNsPerMs);
  expect_went_in_order(3);
}

TEST(RateLimit, NothingPollsWhileTheyWait) {
  limit.set({.operations_per_second = 1});
  CHECK(ask());
  CHECK(!ask());
  for (int i = 0; i < 100; ++i) CHECK_EQUAL(0, loop->run_round());
  CHECK(loop->timers().next_deadline_ns() == clock_ns + kNsPerSecond);
  CHECK_EQUAL(1, pass(kNsPerSecond));
  CHECK(loop->timers().next_deadline_ns() == TimerQueue::kNever);
}

TEST(RateLimit, BothBudgetsCount) {
  limit.set({.operations_per_second = 2, .bytes_per_second = 1000, .burst_ns = kNsPerSecond});
  CHECK(ask(100));
  CHECK(ask(100));
  CHECK(!ask(100));  // no operation is left
  pass(500 * kNsPerMs);
  expect_went_in_order(3);
  pass(2 * kNsPerSecond);
  CHECK(ask(1000));
  CHECK(!ask(100));  // an operation is left, but too few bytes
  pass(100 * kNsPerMs);
  expect_went_in_order(5);
}

TEST(RateLimit, OneThatExceedsTheBurstGoesAndTheOthersPay) {
  limit.set({.bytes_per_second = 1000, .burst_ns = 100 * kNsPerMs});
  CHECK(ask(5000));
  CHECK(!ask(5000));
  CHECK(!ask(1));
  pass(5 * kNsPerSecond - 1);
  expect_went_in_order(1);
  pass(1);
  expect_went_in_order(2);
  pass(5 * kNsPerSecond);
  expect_went_in_order(3);
}

TEST(RateLimit, AChargeIsPaidBeforeTheNextGoes) {
  limit.set({.bytes_per_second = 1000, .burst_ns = 100 * kNsPerMs});
  CHECK(ask());
  limit.charge(5000);
  CHECK(!ask());
  pass(4900 * kNsPerMs - 1);
  expect_went_in_order(1);
  pass(1);
  expect_went_in_order(2);
}

TEST(RateLimit, OneThatWentMayAskAgainBehindTheOthers) {
  limit.set({.operations_per_second = 10});
  CHECK(ask());
  CHECK(!ask());
  CHECK(!ask());
  asks_again_count = 2;
  for (int i = 0; i < 4; ++i) pass(100 * kNsPerMs);
  CHECK((went == std::vector<uint64_t>{0, 1, 2, 1, 2}));
  CHECK_EQUAL(0, counters.waiting.read());
}

TEST(RateLimit, AnEndOfTheLimitLetsThoseGoThatAskAgain) {
  limit.set({.operations_per_second = 10});
  for (int i = 0; i < 3; ++i) ask();
  asks_again_count = 2;
  limit.set({});
  CHECK((went == std::vector<uint64_t>{0, 1, 2, 1, 2}));
  CHECK(limit.is_valid());
  CHECK(loop->timers().next_deadline_ns() == TimerQueue::kNever);
}

TEST(RateLimit, AnEndOfTheLimitLetsAllGo) {
  limit.set({.operations_per_second = 1});
  for (int i = 0; i < 10; ++i) ask();
  CHECK_EQUAL(9, counters.waiting.read());
  limit.set({});
  expect_went_in_order(10);
  CHECK(loop->timers().next_deadline_ns() == TimerQueue::kNever);
  CHECK(ask());
}

TEST(RateLimit, TwoChangesInARowBothHold) {
  limit.set({.operations_per_second = 1});
  ask();
  CHECK(!ask());
  CHECK(!ask());
  limit.set({.operations_per_second = 10});
  CHECK(loop->timers().next_deadline_ns() == clock_ns + 100 * kNsPerMs);
  limit.set({.operations_per_second = 100});
  CHECK(loop->timers().next_deadline_ns() == clock_ns + 10 * kNsPerMs);
  CHECK_EQUAL(100, counters.operations_per_second.read());
  pass(10 * kNsPerMs);
  expect_went_in_order(2);
  limit.set({.operations_per_second = 100, .bytes_per_second = 7});
  CHECK_EQUAL(100, counters.operations_per_second.read());
  CHECK_EQUAL(7, counters.bytes_per_second.read());
  pass(10 * kNsPerMs);
  expect_went_in_order(3);
}

// The timer of a low rate is far away. A higher one does not wait for it.
TEST(RateLimit, AChangeMovesTheTimer) {
  limit.set({.bytes_per_second = 1});
  CHECK(ask(TokenBucket::kCostMax));
  CHECK(!ask(1));
  limit.set({.bytes_per_second = TokenBucket::kRateMax});
  pass(kNsPerSecond);
  expect_went_in_order(2);
}

TEST(RateLimit, SomeAreRemovedAndTheOthersKeepTheirOrder) {
  limit.set({.operations_per_second = 10});
  for (int i = 0; i < 7; ++i) ask();
  auto removed = limit.remove(
      [](const RateWaiter& each) { return static_cast<const Request&>(each).number % 2 == 1; });
  for (const uint64_t number : {1, 3, 5}) {
    CHECK_EQUAL(number, static_cast<Request&>(removed.pop()).number);
  }
  CHECK(removed.is_empty());
  CHECK_EQUAL(3, counters.waiting.read());
  pass(100 * kNsPerMs);
  CHECK_EQUAL(2, went.back());  // the removed ones took nothing
  pass(100 * kNsPerMs);
  pass(100 * kNsPerMs);
  CHECK((went == std::vector<uint64_t>{0, 2, 4, 6}));
}

// The first one waits for more than the second needs.
TEST(RateLimit, ARemovalLetsTheNextGo) {
  limit.set({.bytes_per_second = 1000, .burst_ns = kNsPerSecond});
  CHECK(ask(900));
  CHECK(!ask(1000));
  CHECK(!ask(100));
  CHECK(!limit.remove([](const RateWaiter& each) { return each.waits_for_bytes == 1000; })
             .is_empty());
  CHECK_EQUAL(2, went.back());
  CHECK(!limit.has_waiting());
  CHECK(loop->timers().next_deadline_ns() == TimerQueue::kNever);
}

TEST(RateLimit, AJumpOfTheClockLetsThemGoAndTheRateHolds) {
  limit.set({.operations_per_second = 3});
  for (int i = 0; i < 10; ++i) ask();
  pass(uint64_t{1} << 62);
  expect_went_in_order(2);  // the burst of one
  CHECK(limit.is_valid());
  pass(3 * kNsPerSecond);
  expect_went_in_order(3);  // those that are late are not made up for: the bucket holds one
}

TEST(RateLimit, TheRateIsKeptHoweverRequestsCome) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  limit.set({.operations_per_second = 333, .bytes_per_second = 100'000});
  uint64_t bytes = 0;
  const uint64_t begin_ns = clock_ns;
  while (next < requests.size()) {
    const uint64_t each = random() % 2000;
    bytes += each;
    ask(each);
    if (random() % 4 == 0) pass(random() % (10 * kNsPerMs));
  }
  while (limit.has_waiting()) pass(loop->timers().next_deadline_ns() - clock_ns);
  expect_went_in_order(requests.size());
  // The bursts are 33 operations and 10 kB.
  const uint64_t ns = clock_ns - begin_ns;
  CHECK_TEXT((requests.size() - 34) * kNsPerSecond <= 333 * ns, seed.text());
  CHECK_TEXT((bytes - 10'000) * kNsPerSecond <= 100'000 * ns, seed.text());
}
