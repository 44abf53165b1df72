// The timer queue, compared with a sorted model.
#include "transport/loop/timer_queue.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/seed.h"
#include "tests/support/stderr_capture.h"
#include "transport/loop/shard_plan.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// A timer that records its expiry.
struct Recorded {
  Timer timer;
  uint64_t id = 0;
  std::vector<uint64_t>* fired = nullptr;
  TimerQueue* queue = nullptr;
  Timer* arms = nullptr;  // the timer that it arms when it expires, which may be itself
  uint64_t arms_at_ns = 0;
  bool was_armed_when_called = false;
};

void record(void* context) noexcept {
  auto& self = *static_cast<Recorded*>(context);
  self.was_armed_when_called = self.timer.is_armed();
  self.fired->push_back(self.id);
  if (self.arms != nullptr) self.queue->arm(*self.arms, self.arms_at_ns);
  self.arms = nullptr;
}

using Ids = std::vector<uint64_t>;

}  // namespace

TEST_GROUP(TimerQueue) {
  TimerQueue queue;
  Ids fired;
  std::vector<Recorded> timers;

  void make(size_t count) {
    queue.reserve_more(static_cast<uint32_t>(count));
    fired.reserve(4096);
    timers.resize(count);
    for (size_t i = 0; i < count; ++i) {
      timers[i].timer = {&record, &timers[i]};
      timers[i].id = i;
      timers[i].fired = &fired;
      timers[i].queue = &queue;
    }
  }
};

TEST(TimerQueue, CallsTimersInOrderOfTheirDeadlines) {
  make(4);
  const uint64_t deadlines[] = {30, 10, 40, 20};
  for (size_t i = 0; i < 4; ++i) queue.arm(timers[i].timer, deadlines[i]);
  CHECK_EQUAL(10, queue.next_deadline_ns());
  CHECK_EQUAL(3, queue.expire(30));
  CHECK((fired == Ids{1, 3, 0}));
  CHECK_EQUAL(40, queue.next_deadline_ns());
}

TEST(TimerQueue, ADeadlineIsReachedAtItsNanosecondAndNotBefore) {
  make(1);
  queue.arm(timers[0].timer, 100);
  CHECK_EQUAL(0, queue.expire(99));
  CHECK(timers[0].timer.is_armed());
  CHECK_EQUAL(1, queue.expire(100));
  CHECK(!timers[0].timer.is_armed());
  CHECK_EQUAL(0, queue.expire(100));
}

TEST(TimerQueue, WithoutTimersNothingIsEverDue) {
  CHECK(TimerQueue::kNever == queue.next_deadline_ns());
  CHECK_EQUAL(0, queue.expire(TimerQueue::kNever));
}

TEST(TimerQueue, ATimerIsDisarmedBeforeItIsCalledAndMayArmItself) {
  make(1);
  timers[0].arms = &timers[0].timer;
  timers[0].arms_at_ns = 50;
  queue.arm(timers[0].timer, 10);
  CHECK_EQUAL(1, queue.expire(20));
  CHECK(!timers[0].was_armed_when_called);
  CHECK_EQUAL(50, queue.next_deadline_ns());
  CHECK_EQUAL(1, queue.expire(50));
}

TEST(TimerQueue, ATimerArmedByAnotherAndAlreadyDueIsCalledInTheSameRound) {
  make(2);
  timers[0].arms = &timers[1].timer;
  timers[0].arms_at_ns = 5;
  queue.arm(timers[0].timer, 10);
  CHECK_EQUAL(2, queue.expire(20));
  CHECK((fired == Ids{0, 1}));
}

TEST(TimerQueue, ArmingAgainMovesATimer) {
  make(2);
  queue.arm(timers[0].timer, 10);
  queue.arm(timers[1].timer, 20);
  queue.arm(timers[0].timer, 30);
  CHECK_EQUAL(20, queue.next_deadline_ns());
  queue.arm(timers[0].timer, 15);
  CHECK_EQUAL(15, queue.next_deadline_ns());
  CHECK_EQUAL(2, queue.expire(100));
  CHECK((fired == Ids{0, 1}));
}

TEST(TimerQueue, ACancelledTimerIsNotCalledAndCancellingTwiceIsNothing) {
  make(3);
  for (auto& each : timers) queue.arm(each.timer, 10 + each.id);
  queue.cancel(timers[0].timer);
  queue.cancel(timers[0].timer);
  CHECK(!timers[0].timer.is_armed());
  CHECK_EQUAL(11, queue.next_deadline_ns());
  CHECK_EQUAL(2, queue.expire(100));
  CHECK((fired == Ids{1, 2}));
  queue.cancel(timers[1].timer);
}

TEST(TimerQueue, ReservingTwiceMakesRoomForBoth) {
  make(4);
  queue.reserve_more(60);
  std::vector<Timer> more(60, Timer{.expired = &record});
  for (auto& each : timers) queue.arm(each.timer, 1);
  for (Timer& each : more) queue.arm(each, 2);
  CHECK_EQUAL(1, queue.next_deadline_ns());
}

TEST(TimerQueue, ArmingMoreThanWasReservedIsADefect) {
  make(1);
  queue.arm(timers[0].timer, 1);
  // vector::reserve may allocate more than requested, but not this much more.
  BP_CHECK_DIES("more timers are armed than space was reserved for", {
    static Timer many[1024];
    for (Timer& each : many) {
      each.expired = &record;
      queue.arm(each, 1);
    }
  });
}

TEST(TimerQueue, ArmingMoreThanServicesPlanNamesTheService) {
  make(0);
  timers.resize(3);
  for (Recorded& each : timers) each.timer.expired = &record;
  ShardPlan plan("main");
  plan.add(current_heap_owner(), "cache", {2, 0, 0});
  queue.reserve(plan);
  queue.arm(timers[0].timer, 1);
  queue.arm(timers[1].timer, 1);
  queue.arm(timers[1].timer, 2);  // again, so it takes no further place
  BP_CHECK_DIES("bedplate: broken contract: service cache arms more timers on shard main than it "
                "plans, 2: ServicePlan::timers (bp_plan_timers)\n",
                queue.arm(timers[2].timer, 1));
  queue.cancel(timers[0].timer);
  queue.arm(timers[2].timer, 1);
}

// A release looks at the sum alone.
TEST(TimerQueue, ADebugBuildWarnsOfAServiceThatTakesAnothersTimers) {
  make(0);
  timers.resize(1);
  timers[0].timer.expired = &record;
  ShardPlan plan("main");
  plan.add(current_heap_owner(), "cache", {0, 0, 0});
  plan.add(HeapOwner{kHeapOwnerCountMax - 1}, "store", {1, 0, 0});
  queue.reserve(plan);
  test::StderrCapture capture;
  queue.arm(timers[0].timer, 1);
  STRCMP_EQUAL(BP_DEBUG == 0 ? ""
                             : "bedplate: warning: broken contract: service cache arms more timers "
                               "on shard main than it plans, 0: ServicePlan::timers "
                               "(bp_plan_timers)\n",
               capture.finish().c_str());
}

TEST(TimerQueue, SaysWhoseTimersHaveExpired) {
  make(2);
  queue.arm(timers[0].timer, 1);
  OwnerSet askers = 0;
  LONGS_EQUAL(1, queue.expire(1, &askers));
  CHECK_EQUAL(set_of(current_heap_owner()), askers);
  LONGS_EQUAL(0, queue.expire(2, &askers));
  CHECK_EQUAL(0, askers);
}

TEST(TimerQueue, WhatItCannotCallOrDoesNotHaveIsADefect) {
  make(1);
  Timer silent;
  BP_CHECK_DIES("a timer without a function is armed: Timer::expired", queue.arm(silent, 1));
  queue.arm(timers[0].timer, 1);
  TimerQueue other;
  BP_CHECK_DIES("a timer is armed or cancelled on a loop while another one has it",
                other.cancel(timers[0].timer));
}

TEST(TimerQueue, AnOrderThatWasBrokenIsSeen) {
  make(3);
  for (auto& each : timers) queue.arm(each.timer, 10 + each.id);
  CHECK(queue.is_valid());
  timers[2].timer.deadline_ns = 1;  // only the queue may change this
  CHECK_FALSE(queue.is_valid());
  timers[2].timer.deadline_ns = 12;
  timers[1].timer.heap_index = 2;
  CHECK_FALSE(queue.is_valid());
}

TEST(TimerQueue, IsLikeASortedListForAnySequence) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  constexpr size_t kTimers = 100;
  make(kTimers);
  std::map<uint64_t, uint64_t> model;  // the deadline of each id
  uint64_t now = 0;
  bool same = true;
  for (int step = 0; step < 20'000 && same; ++step) {
    const uint64_t id = random() % kTimers;
    switch (random() % 4) {
      case 0:
      case 1:
        model[id] = now + random() % 50;
        queue.arm(timers[id].timer, model[id]);
        break;
      case 2:
        model.erase(id);
        queue.cancel(timers[id].timer);
        break;
      default: {
        now += random() % 20;
        fired.clear();
        const uint32_t count = queue.expire(now);
        same &= count == fired.size();
        uint64_t last = 0;
        for (const uint64_t each : fired) {  // due timers in order; ties in any order
          const auto found = model.find(each);
          same &= found != model.end() && found->second <= now && found->second >= last;
          if (found == model.end()) continue;
          last = found->second;
          model.erase(found);
        }
      }
    }
    uint64_t next = TimerQueue::kNever;
    for (const auto& [each, deadline] : model) next = std::min(next, deadline);
    // Only expire() calls timers: a timer that is armed in the past waits for it.
    same &= queue.next_deadline_ns() == next && queue.is_valid();
    same &= timers[id].timer.is_armed() == (model.count(id) == 1);
  }
  CHECK_TEXT(same, seed.text());
}
