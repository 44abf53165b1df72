// WriteOrder decides which writes may be in flight together.
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "apps/blockd/stores/write_order_datapath.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

OrderedWrite write_of(uint64_t begin, uint64_t end, bool is_exclusive) {
  OrderedWrite made;
  made.begin = begin;
  made.end = end;
  made.is_exclusive = is_exclusive;
  return made;
}

}  // namespace

TEST_GROUP(WriteOrder) { WriteOrder order; };

TEST(WriteOrder, AlignedOnesDoNotWaitForOneAnother) {
  OrderedWrite first = write_of(0, 8, false);
  OrderedWrite second = write_of(4, 12, false);
  CHECK(order.enter(first));
  CHECK(order.enter(second));
  POINTERS_EQUAL(nullptr, order.try_next());
  order.leave(first);
  order.leave(second);
}

TEST(WriteOrder, WhatReadsAndWritesBackIsAloneInItsBlocks) {
  OrderedWrite exclusive = write_of(4, 6, true);
  OrderedWrite apart = write_of(6, 8, true);
  OrderedWrite aligned = write_of(0, 5, false);
  OrderedWrite behind = write_of(0, 1, false);
  CHECK(order.enter(exclusive));
  CHECK(order.enter(apart));
  CHECK_FALSE(order.enter(aligned));
  CHECK(order.enter(behind));  // it overlaps `aligned`, but neither is exclusive
  POINTERS_EQUAL(nullptr, order.try_next());
  order.leave(exclusive);
  POINTERS_EQUAL(&aligned, order.try_next());
  POINTERS_EQUAL(nullptr, order.try_next());
}

TEST(WriteOrder, OneThatWaitsIsNotOvertaken) {
  OrderedWrite first = write_of(0, 4, false);
  OrderedWrite waits = write_of(3, 5, true);
  OrderedWrite late = write_of(4, 8, false);
  CHECK(order.enter(first));
  CHECK_FALSE(order.enter(waits));
  CHECK_FALSE(order.enter(late));
  order.leave(first);
  POINTERS_EQUAL(&waits, order.try_next());
  POINTERS_EQUAL(nullptr, order.try_next());
  order.leave(waits);
  POINTERS_EQUAL(&late, order.try_next());
}

TEST(WriteOrder, LeavingTwiceOrBeforeItHasBegunIsAProgrammingError) {
  OrderedWrite first = write_of(0, 4, false);
  OrderedWrite waits = write_of(3, 5, true);
  CHECK(order.enter(first));
  CHECK_FALSE(order.enter(waits));
  BP_CHECK_DIES("assertion failed: write.has_begun", order.leave(waits));
  order.leave(first);
  BP_CHECK_DIES("assertion failed: write.has_begun", order.leave(first));
  first.has_begun = true;
  BP_CHECK_DIES("assertion failed: (write.previous == nullptr", order.leave(first));
}

TEST(WriteOrder, IsNotValidWithTwoInFlightThatMustBeApart) {
  OrderedWrite first = write_of(0, 4, false);
  OrderedWrite apart = write_of(4, 5, true);
  OrderedWrite waits = write_of(3, 5, true);
  CHECK(order.enter(first));
  CHECK(order.enter(apart));
  CHECK_FALSE(order.enter(waits));
  CHECK(order.is_valid());
  const auto check_spoiled_by = [&](auto& part, auto by) {
    const auto before = std::exchange(part, by);
    CHECK_FALSE(order.is_valid());
    part = before;
    CHECK(order.is_valid());
  };
  check_spoiled_by(apart.begin, uint64_t{3});
  check_spoiled_by(first.is_exclusive, true);  // exclusive_count_ does not count it
  check_spoiled_by(waits.has_begun, true);
  check_spoiled_by(waits.previous, &first);
  check_spoiled_by(apart.next, static_cast<OrderedWrite*>(nullptr));
  check_spoiled_by(first.end, UINT64_MAX);
}

TEST(WriteOrder, NoTwoThatMustBeApartAreInFlightTogether) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::deque<OrderedWrite> all(12);
  std::vector<OrderedWrite*> running;
  std::vector<OrderedWrite*> idle;
  for (OrderedWrite& each : all) idle.push_back(&each);
  bool good = true;
  uint64_t done = 0;
  const auto begins = [&](OrderedWrite* write) {
    for (const OrderedWrite* other : running) {
      const bool overlaps = other->begin < write->end && write->begin < other->end;
      good &= !overlaps || (!other->is_exclusive && !write->is_exclusive);
    }
    running.push_back(write);
  };
  for (int round = 0; round < 20'000 && good; ++round) {
    if (!idle.empty() && random() % 2 == 0) {
      OrderedWrite* write = idle.back();
      idle.pop_back();
      const uint64_t begin = random() % 16;
      *write = write_of(begin, begin + 1 + random() % 4, random() % 3 == 0);
      if (order.enter(*write)) begins(write);
    } else if (!running.empty()) {
      const size_t which = random() % running.size();
      OrderedWrite* write = running[which];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
      order.leave(*write);
      idle.push_back(write);
      ++done;
      while (OrderedWrite* next = order.try_next()) begins(next);
    }
  }
  CHECK_TEXT(good && done > 1'000, seed.text());
}
