// The table of loans: compared with a model, and with borrowers that write garbage.
#include "transport/shm/endpoint/loan_table_datapath.h"

#include <map>
#include <random>
#include <vector>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(LoanTable) {
  static constexpr uint32_t kCount = 100;

  std::atomic<uint8_t> returned[kCount] = {};
  std::byte blocks[kCount];
  LoanTable table;
  LoanTable::Record out[kCount];

  void setup() override { table.create(returned); }

  void give_back(const LoanTable::Lent& lent) { returned[lent.loan].store(lent.mark); }
};

TEST(LoanTable, CollectsWhatCameBack) {
  Completion done;
  const LoanTable::Lent one = table.try_lend(&blocks[1], &done, 7);
  const LoanTable::Lent two = table.try_lend(&blocks[2], nullptr, 8);
  LONGS_EQUAL(2, table.out_count());
  LONGS_EQUAL(0, table.collect(out));
  give_back(one);
  LONGS_EQUAL(1, table.collect(out));
  POINTERS_EQUAL(&blocks[1], out[0].block);
  POINTERS_EQUAL(&done, out[0].returned);
  LONGS_EQUAL(7, out[0].member);
  LONGS_EQUAL(0, table.collect(out));
  give_back(two);
  LONGS_EQUAL(1, table.collect(out));
  LONGS_EQUAL(0, table.out_count());
}

TEST(LoanTable, LendsSoManyAndNoMore) {
  for (uint32_t i = 0; i < kCount; ++i) CHECK(table.try_lend(blocks, nullptr, 0).loan < kCount);
  LONGS_EQUAL(UINT32_MAX, table.try_lend(blocks, nullptr, 0).loan);
  table.cancel(50);
  LONGS_EQUAL(50, table.try_lend(blocks, nullptr, 0).loan);
}

// As many loans as a group may have. The number behind the last loan means none.
TEST(LoanTable, LendsAllOfTheMost) {
  constexpr uint32_t kMost = 65535;
  std::vector<std::atomic<uint8_t>> bytes(kMost);
  LoanTable most;
  most.create(bytes);
  for (int round = 0; round < 2; ++round) {
    std::vector<bool> is_lent(kMost);
    for (uint32_t i = 0; i < kMost; ++i) {
      const LoanTable::Lent lent = most.try_lend(blocks, nullptr, 0);
      CHECK(lent.loan < kMost && !is_lent[lent.loan]);
      is_lent[lent.loan] = true;
      bytes[lent.loan].store(lent.mark);
    }
    LONGS_EQUAL(UINT32_MAX, most.try_lend(blocks, nullptr, 0).loan);
    while (most.collect(out) > 0) {
    }
    LONGS_EQUAL(0, most.out_count());
  }
}

TEST(LoanTable, CollectsAtMostWhatWasAskedFor) {
  for (uint32_t i = 0; i < 10; ++i) give_back(table.try_lend(blocks, nullptr, 0));
  LONGS_EQUAL(4, table.collect(std::span(out, 4)));
  LONGS_EQUAL(4, table.collect(std::span(out, 4)));
  LONGS_EQUAL(2, table.collect(std::span(out, 4)));
}

TEST(LoanTable, AnOldMarkMeansNothing) {
  for (int round = 0; round < 1000; ++round) {
    const LoanTable::Lent lent = table.try_lend(blocks, nullptr, 0);
    LONGS_EQUAL(0, table.collect(out));
    give_back(lent);
    LONGS_EQUAL(1, table.collect(out));
  }
}

// A sender that finds the FIFO full cancels its loan and tries again, any number of times.
TEST(LoanTable, CancellingManyTimesDoesNotComeRoundToTheMarkThatLiesThere) {
  give_back(table.try_lend(blocks, nullptr, 0));
  LONGS_EQUAL(1, table.collect(out));
  for (int tries = 0; tries < 1000; ++tries) {
    const LoanTable::Lent lent = table.try_lend(blocks, nullptr, 0);
    LONGS_EQUAL(0, table.collect(out));
    table.cancel(lent.loan);
  }
}

TEST(LoanTable, DeathsDoNotComeRoundToTheMarkThatLiesThere) {
  for (int deaths = 0; deaths < 1000; ++deaths) {
    const LoanTable::Lent lent = table.try_lend(blocks, nullptr, 3);
    LONGS_EQUAL(0, table.collect(out));
    if (deaths == 0) give_back(lent);  // returned, but not collected before the death
    LONGS_EQUAL(1, table.collect_from(3, out));
  }
}

TEST(LoanTable, WhatTheDeadHadGivenBackIsToldFromWhatTheyHeld) {
  const LoanTable::Lent returned_one = table.try_lend(&blocks[0], nullptr, 3);
  table.try_lend(&blocks[1], nullptr, 3);
  give_back(returned_one);
  LONGS_EQUAL(2, table.collect_from(3, out));
  for (int i = 0; i < 2; ++i) CHECK(out[i].is_returned == (out[i].block == &blocks[0]));
}

TEST(LoanTable, TakesBackWhatTheDeadHeldAndNothingElse) {
  for (uint32_t i = 0; i < 20; ++i) table.try_lend(&blocks[i], nullptr, i % 2);
  LONGS_EQUAL(6, table.collect_from(1, std::span(out, 6)));
  LONGS_EQUAL(4, table.collect_from(1, std::span(out, 6)));
  LONGS_EQUAL(0, table.collect_from(1, out));
  LONGS_EQUAL(10, table.collect_from(0, out));
  for (uint32_t i = 0; i < 10; ++i) LONGS_EQUAL(0, out[i].member);
}

TEST(LoanTable, WhatBorrowersScribbleOnFreeLoansMeansNothing) {
  for (std::atomic<uint8_t>& byte : returned) byte.store(200);
  LONGS_EQUAL(0, table.collect(out));
  const LoanTable::Lent lent = table.try_lend(blocks, nullptr, 0);
  LONGS_EQUAL(0, table.collect(out));
  give_back(lent);
  LONGS_EQUAL(1, table.collect(out));
}

TEST(LoanTable, RandomAgainstAModel) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::map<uint32_t, std::pair<LoanTable::Lent, uint32_t>> model;  // by loan: its mark and borrower
  std::map<uint32_t, bool> came_back;
  for (int i = 0; i < 50000; ++i) {
    const uint32_t member = static_cast<uint32_t>(random() % 4);
    switch (random() % 5) {
      case 0:
      case 1: {
        const LoanTable::Lent lent = table.try_lend(&blocks[0], nullptr, member);
        CHECK_TEXT((lent.loan == UINT32_MAX) == (model.size() == kCount), seed.text());
        if (lent.loan == UINT32_MAX) break;
        CHECK_TEXT(model.count(lent.loan) == 0, seed.text());
        if (random() % 4 == 0) table.cancel(lent.loan);
        else model[lent.loan] = {lent, member};
        break;
      }
      case 2:
      case 3:
        if (!model.empty()) {
          auto one = model.begin();
          std::advance(one, random() % model.size());
          give_back(one->second.first);
          came_back[one->first] = true;
        }
        break;
      default:
        if (random() % 20 == 0) {
          size_t held = 0;
          for (auto one = model.begin(); one != model.end();) {
            if (one->second.second != member) {
              ++one;
              continue;
            }
            ++held;
            came_back.erase(one->first);
            one = model.erase(one);
          }
          CHECK_TEXT(table.collect_from(member, out) == held, seed.text());
        } else {
          CHECK_TEXT(table.collect(out) == came_back.size(), seed.text());
          for (const auto& [loan, was] : came_back) model.erase(loan);
          came_back.clear();
        }
    }
    CHECK_TEXT(table.out_count() == model.size() && table.is_valid(), seed.text());
  }
}
