// A first-in, first-out queue, linked through a member of its objects.
#include "platform/tail_queue.h"

#include <algorithm>
#include <deque>
#include <random>

#include "tests/support/death_test.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Thing {
  int number = 0;
  Thing* next = nullptr;
};

using Things = TailQueue<&Thing::next>;

bool is_any(const Thing&) { return true; }

}  // namespace

TEST_GROUP(TailQueue) {
  Things queue;
  Thing things[8] = {};

  void setup() override {
    for (int i = 0; i < 8; ++i) things[i].number = i;
  }
  // The count, or -1 if the queue is not valid.
  int counted(size_t most = 8) const {
    const auto count = queue.count(most, is_any);
    return count ? static_cast<int>(*count) : -1;
  }
};

TEST(TailQueue, BeginsEmpty) {
  CHECK(queue.is_empty());
  POINTERS_EQUAL(nullptr, queue.first());
  CHECK_EQUAL(0, counted(0));
}

TEST(TailQueue, GivesThemInTheOrderInWhichTheyCame) {
  for (Thing& thing : things) queue.push(thing);
  CHECK_EQUAL(8, counted());
  for (Thing& thing : things) {
    POINTERS_EQUAL(&thing, queue.first());
    POINTERS_EQUAL(&thing, &queue.pop());
  }
  CHECK(queue.is_empty());
}

TEST(TailQueue, IsUsedAnewAfterItWasEmpty) {
  queue.push(things[0]);
  queue.pop();
  queue.push(things[1]);
  queue.push(things[0]);
  POINTERS_EQUAL(&things[1], &queue.pop());
  POINTERS_EQUAL(&things[0], &queue.pop());
  CHECK(queue.is_empty());
}

TEST(TailQueue, TakenItsObjectsMayBeQueuedAnew) {
  queue.push(things[0]);
  queue.push(things[1]);
  Things taken = queue.take();
  CHECK(queue.is_empty());
  while (!taken.is_empty()) queue.push(taken.pop());
  CHECK_EQUAL(2, counted());
  POINTERS_EQUAL(&things[0], &queue.pop());
}

TEST(TailQueue, CountsAtMostSoManyAndGoodOnesAlone) {
  for (Thing& thing : things) queue.push(thing);
  CHECK_EQUAL(-1, counted(7));
  CHECK_FALSE(queue.count(8, [](const Thing& thing) { return thing.number != 7; }).has_value());
}

TEST(TailQueue, CountingSeesARingAndALostEnd) {
  queue.push(things[0]);
  queue.push(things[1]);
  things[1].next = &things[0];
  CHECK_EQUAL(-1, counted());
  things[1].next = nullptr;
  things[0].next = nullptr;
  CHECK_EQUAL(-1, counted());
}

TEST(TailQueue, ByChance) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::deque<Thing*> model;
  for (int i = 0; i < 10'000; ++i) {
    Thing& thing = things[random() % 8];
    const bool is_queued = std::find(model.begin(), model.end(), &thing) != model.end();
    if (!is_queued) {
      queue.push(thing);
      model.push_back(&thing);
    } else {
      POINTERS_EQUAL(model.front(), &queue.pop());
      model.pop_front();
    }
    CHECK_EQUAL_TEXT(static_cast<int>(model.size()), counted(), seed.text());
  }
}

#if BP_DEBUG
TEST(TailQueue, NothingComesOutOfAnEmptyOne) {
  BP_CHECK_DIES("first_ != nullptr", { Things().pop(); });
}

TEST(TailQueue, NoneIsQueuedTwiceInARow) {
  queue.push(things[0]);
  BP_CHECK_DIES("last_ != &object", { queue.push(things[0]); });
}
#endif
