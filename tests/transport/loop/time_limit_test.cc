// A time limit: things that end in time, and things that do not, compared with a list.
#include "transport/loop/time_limit.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Thing : Limited {
  uint64_t begun_ns = 0;
  uint32_t overdue_count = 0;
};

class LimitBodies : public Utest {
 public:
  static constexpr uint64_t kLimitNs = 100;

  uint64_t now_ns = 1000;
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  TimeLimit limit;
  std::vector<Thing*> overdue;
  Thing* begins_another = nullptr;  // in the callback
  Thing* ends_another = nullptr;

  void create(uint64_t limit_ns) {
    CHECK(loop->create({.test_clock_ns = &now_ns}).ok());
    loop->look_at_clock();
    limit.create(*loop, limit_ns, &was_overdue, this);
  }
  static void was_overdue(void* context, Limited& thing) noexcept {
    auto& self = *static_cast<LimitBodies*>(context);
    CHECK_FALSE(thing.is_limited());
    self.overdue.push_back(static_cast<Thing*>(&thing));
    ++self.overdue.back()->overdue_count;
    if (self.begins_another != nullptr) self.limit.begin(*self.begins_another);
    if (self.ends_another != nullptr) self.limit.end(*self.ends_another);
    self.begins_another = self.ends_another = nullptr;
  }
  // Lets the time pass, and the timers expire.
  void wait_until(uint64_t ns) {
    now_ns = ns;
    loop->look_at_clock();
    loop->own_timers().expire(ns);
    CHECK(limit.is_valid());
  }
  bool is_armed() { return loop->own_timers().next_deadline_ns() != TimerQueue::kNever; }
};

}  // namespace

TEST_GROUP_BASE(TimeLimit, LimitBodies){};

TEST(TimeLimit, ReportsAThingThatHasNotEnded) {
  create(kLimitNs);
  Thing late, in_time;
  limit.begin(late);
  limit.begin(in_time);
  CHECK(late.is_limited());
  wait_until(1099);
  LONGS_EQUAL(0, overdue.size());
  limit.end(in_time);
  CHECK_FALSE(in_time.is_limited());
  wait_until(1100);
  LONGS_EQUAL(1, overdue.size());
  POINTERS_EQUAL(&late, overdue[0]);
  limit.end(late);  // does nothing
  CHECK_FALSE(is_armed());
}

TEST(TimeLimit, LetsTheLoopSleepWhileNothingIsLimited) {
  create(kLimitNs);
  CHECK_FALSE(is_armed());
  Thing thing;
  limit.begin(thing);
  limit.end(thing);
  CHECK_EQUAL(1100, loop->own_timers().next_deadline_ns());
  wait_until(1050);
  limit.begin(thing);  // its end is later than that of the timer
  wait_until(1100);
  LONGS_EQUAL(0, overdue.size());
  CHECK_EQUAL(1150, loop->own_timers().next_deadline_ns());
  limit.end(thing);
  wait_until(1150);
  CHECK_FALSE(is_armed());
}

TEST(TimeLimit, MayBeUsedByItsCallback) {
  create(kLimitNs);
  Thing first, second, third;
  limit.begin(first);
  limit.begin(second);
  begins_another = &third;
  ends_another = &second;
  wait_until(1100);
  LONGS_EQUAL(1, overdue.size());
  CHECK(third.is_limited() && !second.is_limited());
  begins_another = &third;
  wait_until(1200);
  LONGS_EQUAL(2, overdue.size());
  POINTERS_EQUAL(&third, overdue[1]);
  CHECK(third.is_limited());
  limit.end(third);
}

TEST(TimeLimit, MayBeNone) {
  create(0);
  Thing thing;
  limit.begin(thing);
  CHECK_FALSE(is_armed());
  wait_until(uint64_t{1} << 61);
  LONGS_EQUAL(0, overdue.size());
  CHECK(thing.is_limited());
  limit.end(thing);
}

// The queue of timers may be ahead of the loop's clock.
TEST(TimeLimit, EndsWithTheTimeOfItsTimer) {
  create(kLimitNs);
  Thing first, second;
  limit.begin(first);
  wait_until(1010);
  limit.begin(second);
  loop->own_timers().expire(1105);
  LONGS_EQUAL(1, overdue.size());
  loop->own_timers().expire(1110);
  LONGS_EQUAL(2, overdue.size());
}

TEST(TimeLimit, AgreesWithAList) {
  create(kLimitNs);
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::vector<Thing> things(20);
  uint32_t expected_count = 0;
  for (int step = 0; step < 5000; ++step) {
    Thing& thing = things[random() % things.size()];
    if (thing.is_limited()) {
      limit.end(thing);
    } else {
      thing.begun_ns = now_ns;
      limit.begin(thing);
    }
    std::vector<Thing*> due;
    const uint64_t next_ns = now_ns + random() % 30;
    for (Thing& each : things) {
      if (each.is_limited() && each.begun_ns + kLimitNs <= next_ns) due.push_back(&each);
    }
    overdue.clear();
    wait_until(next_ns);
    std::sort(due.begin(), due.end());
    std::sort(overdue.begin(), overdue.end());
    CHECK_TEXT(due == overdue, seed.text());
    expected_count += static_cast<uint32_t>(due.size());
  }
  CHECK(expected_count > 0);
}
