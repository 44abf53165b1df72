#include "platform/free_list.h"

#include <random>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Thing {
  bool is_spare = false;
  Thing* next = nullptr;
};

}  // namespace

TEST_GROUP(FreeList) {
  FreeList<&Thing::next> list;
  Thing things[4];

  static bool is_spare(const Thing& thing) { return thing.is_spare; }
  void push(Thing & thing) {
    thing.is_spare = true;
    list.push(thing);
  }
};

TEST(FreeList, TheLastOneBackIsTheFirstOneOut) {
  CHECK(list.is_empty());
  POINTERS_EQUAL(nullptr, list.first());
  push(things[0]);
  push(things[1]);
  POINTERS_EQUAL(&things[1], list.first());
  POINTERS_EQUAL(&things[1], &list.pop());
  push(things[2]);
  POINTERS_EQUAL(&things[2], &list.pop());
  CHECK_FALSE(list.is_empty());
  POINTERS_EQUAL(&things[0], &list.pop());
  CHECK(list.is_empty());
}

TEST(FreeList, KnowsHowManyAreSpare) {
  CHECK(list.has_just(0, is_spare));
  for (Thing& thing : things) push(thing);
  CHECK(list.has_just(4, is_spare));
  CHECK_FALSE(list.has_just(3, is_spare));
  CHECK_FALSE(list.has_just(5, is_spare));
  things[1].is_spare = false;
  CHECK_FALSE(list.has_just(4, is_spare));
}

// An object that is pushed twice makes the list a ring.
TEST(FreeList, ARingIsNotSo) {
  for (Thing& thing : things) push(thing);
  things[0].next = &things[3];
  CHECK_FALSE(list.has_just(4, is_spare));
}

#if BP_DEBUG
TEST(FreeList, WhatIsNotThereIsAProgrammingError) {
  BP_CHECK_DIES("first_ != nullptr", list.pop());
  push(things[0]);
  BP_CHECK_DIES("&object != first_", list.push(things[0]));
}
#endif

TEST(FreeList, RandomAgainstAModel) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::vector<Thing> many(50);
  std::vector<Thing*> model;
  std::vector<Thing*> taken;
  for (Thing& thing : many) taken.push_back(&thing);
  for (int i = 0; i < 20000; ++i) {
    if (!taken.empty() && random() % 2 == 0) {
      std::swap(taken[random() % taken.size()], taken.back());
      push(*taken.back());
      model.push_back(taken.back());
      taken.pop_back();
    } else if (!model.empty()) {
      Thing& thing = list.pop();
      thing.is_spare = false;
      CHECK_TEXT(&thing == model.back(), seed.text());
      taken.push_back(&thing);
      model.pop_back();
    }
    CHECK_TEXT(list.has_just(model.size(), is_spare), seed.text());
  }
}
