// The merge of two legs: duplicates, gaps and their window, and restarts; then random arrivals
// against a simple model: each packet that came by a leg within the window is delivered once, in
// order.
#include "apps/tsrelay/leg_merge_datapath.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/tsrelay/dice.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

struct Book final : MergeSink {
  std::vector<uint32_t> delivered;
  uint32_t missing = 0;
  std::map<MergeDrop, uint32_t> dropped;
  uint32_t restarts = 0;
  std::string order;  // the order of items and restarts

  void deliver(uint32_t item, uint32_t missing_count) noexcept override {
    delivered.push_back(item);
    missing += missing_count;
    order += std::to_string(item) + " ";
  }
  void drop(uint32_t, MergeDrop cause) noexcept override { ++dropped[cause]; }
  void restarted() noexcept override {
    ++restarts;
    order += "| ";
  }
};

}  // namespace

TEST_GROUP(LegMerge) {
  Book book;
  LegMerge merge;
  std::vector<LegMerge::Slot> slots;
  uint64_t now = 1'000'000;

  void create(uint32_t window_packets, uint64_t window_ns = 1000) {
    slots.assign(LegMerge::slot_count(window_packets), {});
    merge.create({.window_ns = window_ns, .window_packets = window_packets, .sink = &book}, slots);
  }
  // Inserts a packet. The short forms derive the item and the timestamp from the sequence number.
  void put(uint32_t leg, uint16_t sequence, uint32_t item, uint32_t timestamp) {
    merge.insert({item, leg, sequence, timestamp, now});
    CHECK(merge.is_valid());
  }
  void put(uint32_t leg, uint32_t sequence) {
    put(leg, static_cast<uint16_t>(sequence), sequence, sequence * 90U);
  }
  void put_all(uint32_t leg, std::initializer_list<uint32_t> all) {
    for (const uint32_t sequence : all) put(leg, sequence);
  }
};

TEST(LegMerge, InOrderNothingWaits) {
  create(16);
  for (uint32_t i = 65530; i < 65550; ++i) put(0, static_cast<uint16_t>(i), i, i);
  LONGS_EQUAL(20, book.delivered.size());
  for (uint32_t i = 0; i < 20; ++i) LONGS_EQUAL(65530 + i, book.delivered[i]);
  CHECK(merge.deadline_ns() == LegMerge::kNever);
  LONGS_EQUAL(0, merge.lost_count());
  LONGS_EQUAL(0, merge.leg_report(0).lost);
  LONGS_EQUAL(1, merge.span_peak());
}

TEST(LegMerge, TheOtherLegBringsWhatIsMissing) {
  create(16);
  put_all(0, {1, 2, 4, 5});
  STRCMP_EQUAL("1 2 ", book.order.c_str());
  LONGS_EQUAL(2, merge.held_count());
  put_all(1, {1, 2, 3, 4, 5, 6});
  STRCMP_EQUAL("1 2 3 4 5 6 ", book.order.c_str());
  LONGS_EQUAL(4, book.dropped[MergeDrop::kDuplicate]);
  LONGS_EQUAL(0, merge.lost_count());
  LONGS_EQUAL(1, merge.leg_report(0).lost);
  LONGS_EQUAL(0, merge.leg_report(1).lost);
}

TEST(LegMerge, OrderIsRestored) {
  create(16);
  put_all(0, {1, 4, 3, 2, 6, 5});
  STRCMP_EQUAL("1 2 3 4 5 6 ", book.order.c_str());
  LONGS_EQUAL(3, merge.span_peak());  // 4 comes ahead of 2 and 3
  LONGS_EQUAL(3, merge.leg_report(0).reordered);
  LONGS_EQUAL(0, merge.leg_report(0).lost);
}

TEST(LegMerge, AGapIsGivenUpAfterTheWindow) {
  create(16);
  put(0, 1);
  now = 1'000'100;
  put(0, 3);
  now = 1'000'500;
  put(0, 6);
  LONGLONGS_EQUAL(1'001'100, merge.deadline_ns());
  merge.expire(1'001'099);
  STRCMP_EQUAL("1 ", book.order.c_str());
  merge.expire(1'001'100);
  STRCMP_EQUAL("1 3 ", book.order.c_str());
  LONGLONGS_EQUAL(1'001'500, merge.deadline_ns());
  merge.expire(1'001'500);
  STRCMP_EQUAL("1 3 6 ", book.order.c_str());
  LONGS_EQUAL(3, merge.lost_count());
  LONGS_EQUAL(3, book.missing);
  put(1, 2);
  LONGS_EQUAL(1, book.dropped[MergeDrop::kLate]);
  put(1, 3);
  LONGS_EQUAL(1, book.dropped[MergeDrop::kDuplicate]);
  CHECK(merge.deadline_ns() == LegMerge::kNever);
}

TEST(LegMerge, PacketsWithinAGapDoNotProlongTheWindow) {
  create(16);
  put(0, 1);
  now = 1'000'100;
  put(0, 8);
  now = 1'000'900;
  put_all(0, {7, 4});
  LONGLONGS_EQUAL(1'001'100, merge.deadline_ns());
  merge.expire(1'001'099);
  STRCMP_EQUAL("1 ", book.order.c_str());
  merge.expire(1'001'100);
  STRCMP_EQUAL("1 4 7 8 ", book.order.c_str());
  CHECK(merge.deadline_ns() == LegMerge::kNever);
}

TEST(LegMerge, TheWindowIsOneOfPacketsToo) {
  create(4);
  put(0, 10);
  put_all(0, {12, 13, 14});
  STRCMP_EQUAL("10 ", book.order.c_str());
  put(0, 15);  // the fifth from 11 on
  STRCMP_EQUAL("10 12 13 14 15 ", book.order.c_str());
  LONGS_EQUAL(1, merge.lost_count());
  put(0, 22);  // more than a window ahead: packets before the window are lost at once
  LONGS_EQUAL(4, merge.lost_count());
  put(0, 19);
  merge.expire(~uint64_t{0} - 1);
  STRCMP_EQUAL("10 12 13 14 15 19 22 ", book.order.c_str());
  LONGS_EQUAL(6, merge.lost_count());
}

TEST(LegMerge, ARestartIsBelievedWhenTwoSaySo) {
  create(16);
  put_all(0, {100, 101, 103});
  put(0, 40000);
  LONGS_EQUAL(0, book.restarts);
  put(0, 104);  // the stray packet is dropped
  LONGS_EQUAL(1, book.dropped[MergeDrop::kOutside]);
  put(0, 50000);
  put(0, 50001);
  STRCMP_EQUAL("100 101 103 104 | 50000 50001 ", book.order.c_str());
  LONGS_EQUAL(1, merge.lost_count());
  // The slower leg still brings old packets.
  put_all(1, {102, 103, 104});
  LONGS_EQUAL(3, book.dropped[MergeDrop::kLate]);
  LONGS_EQUAL(1, book.restarts);
  put_all(1, {50000, 50001, 50002});
  LONGS_EQUAL(2, book.dropped[MergeDrop::kDuplicate]);
  LONGS_EQUAL(50002, book.delivered.back());
  // Long after, such numbers mean that the sender has restarted once more.
  now += LegMerge::kOldNs;
  put(0, 105);
  put(0, 106);
  LONGS_EQUAL(2, book.restarts);
  LONGS_EQUAL(106, book.delivered.back());
}

TEST(LegMerge, ARestartALittleEarlierIsNoDuplicate) {
  create(16);
  put_all(0, {100, 101, 102, 103});
  put(0, 101, 1, 777'777);
  put(0, 102, 2, 777'867);
  put(0, 103, 3, 777'957);
  STRCMP_EQUAL("100 101 102 103 | 1 2 3 ", book.order.c_str());
  LONGS_EQUAL(0, book.dropped[MergeDrop::kDuplicate]);
}

TEST(LegMerge, WhatComesBackIsOfNoLeg) {
  create(16);
  put(0, 1);
  put(0, 3);
  put(LegMerge::kRecovered, 2);
  STRCMP_EQUAL("1 2 3 ", book.order.c_str());
  LONGS_EQUAL(1, merge.leg_report(0).lost);
  put(LegMerge::kRecovered, 40000);
  LONGS_EQUAL(1, book.dropped[MergeDrop::kOutside]);
}

TEST(LegMerge, ChanceAgainstAModel) {
  Dice dice;
  for (int round = 0; round < 50; ++round) {
    Book mine;
    LegMerge one;
    constexpr uint32_t kWindow = 64;
    std::vector<LegMerge::Slot> own_slots(LegMerge::slot_count(kWindow));
    one.create({.window_ns = 1'000'000, .window_packets = kWindow, .sink = &mine}, own_slots);
    constexpr uint32_t kCount = 3000;
    const uint32_t first = dice.below(65536);
    std::set<uint32_t> arrived;
    // Each leg loses packets. One leg is up to 20 packets behind; each packet is up to 10 late.
    std::vector<std::pair<uint32_t, std::pair<uint32_t, uint32_t>>> events;
    const uint32_t skew = dice.below(20);
    for (uint32_t i = 0; i < kCount; ++i) {
      for (uint32_t leg = 0; leg < 2; ++leg) {
        if (i > 0 && dice.below(100) < 5) continue;
        events.push_back({i * 16 + leg * skew * 16 + (i > 0 ? 1 + dice.below(160) : 0), {leg, i}});
        arrived.insert(i);
      }
    }
    std::sort(events.begin(), events.end());
    for (const auto& [when, what] : events) {
      const uint32_t number = first + what.second;
      one.insert({number, what.first, static_cast<uint16_t>(number), number, when});
      CHECK(one.is_valid());
    }
    one.restart();
    CHECK_EQUAL(arrived.size(), mine.delivered.size());
    size_t at = 0;
    for (const uint32_t i : arrived) LONGS_EQUAL(first + i, mine.delivered[at++]);
    LONGS_EQUAL(*arrived.rbegin() + 1 - arrived.size(), one.lost_count());
    LONGS_EQUAL(0, mine.dropped[MergeDrop::kOutside] + mine.dropped[MergeDrop::kLate]);
  }
}
