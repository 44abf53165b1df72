// The map of free pieces: runs of free units, compared with a model.
#include "transport/messages/piece_map_datapath.h"

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(PieceMap) {
  static constexpr uint32_t kUnitCount = 150;  // the last word is not full

  PieceMap map{kUnitCount};

  // The map's words, which are its first member, so that a test can corrupt them.
  uint64_t* words() const {
    uint64_t* first = nullptr;
    std::memcpy(&first, &map, sizeof first);
    return first;
  }
};

TEST(PieceMap, FindsWhatLiesWithinTheBounds) {
  map.take(10, 5);
  LONGS_EQUAL(0, map.find(0, kUnitCount, 10));
  LONGS_EQUAL(15, map.find(0, kUnitCount, 11));
  LONGS_EQUAL(15, map.find(12, kUnitCount, 1));
  LONGS_EQUAL(PieceMap::kNone, map.find(0, 20, 11));
  LONGS_EQUAL(15, map.find(0, 26, 11));
  LONGS_EQUAL(PieceMap::kNone, map.find(30, 20, 1));
  LONGS_EQUAL(PieceMap::kNone, map.find(0, kUnitCount, kUnitCount - 14));
  LONGS_EQUAL(15, map.find(0, kUnitCount, kUnitCount - 15));
}

// A piece does not wrap around the end.
TEST(PieceMap, LooksBehindWhatWasTakenLastAndThenFromTheBeginning) {
  map.take(0, 100);
  map.give_back(0, 50);
  LONGS_EQUAL(100, map.find_next(kUnitCount, 10));
  LONGS_EQUAL(0, map.find_next(90, 10));
  map.take(100, 45);
  LONGS_EQUAL(145, map.find_next(kUnitCount, 5));
  LONGS_EQUAL(0, map.find_next(kUnitCount, 6));
  map.take(145, 5);
  LONGS_EQUAL(0, map.find_next(kUnitCount, 1));
  LONGS_EQUAL(PieceMap::kNone, map.find_next(kUnitCount, 51));
}

TEST(PieceMap, OfNoUnitsHasNone) {
  PieceMap none;
  LONGS_EQUAL(PieceMap::kNone, none.find_next(0, 1));
  CHECK(none.is_valid());
}

TEST(PieceMap, TakesBackNoMoreThanIsTaken) {
  map.take(3, 2);
  BP_CHECK_DIES("assertion failed: ", map.give_back(3, 3));
  BP_CHECK_DIES("assertion failed: ", map.give_back(kUnitCount - 1, 2));
  map.take(5, 100);
  BP_CHECK_DIES("(word & mask) == (kIsTaken ? 0 : mask)", map.give_back(104, 2));
}

TEST(PieceMap, TakesNothingTwice) {
  map.take(60, 10);  // across two words
  map.give_back(60, 1);
  BP_CHECK_DIES("assertion failed: ", map.take(60, 2));
}

TEST(PieceMap, KnowsWhetherItIsValid) {
  map.take(3, 2);
  CHECK(map.is_valid());
  words()[0] ^= 8;  // a taken unit
  CHECK_FALSE(map.is_valid());
  words()[2] ^= uint64_t{1} << (kUnitCount % 64);  // beyond the end: the count is right again
  CHECK_FALSE(map.is_valid());
#if BP_DEBUG
  BP_CHECK_DIES("is_valid() before a change", map.take(100, 1));
#endif
  words()[0] ^= 8;
  words()[2] = 0;
  CHECK(map.is_valid());
}

TEST(PieceMap, RandomAgainstAModel) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  struct Piece {
    uint32_t first, count;
  };
  std::vector<Piece> pieces;
  std::vector<bool> model(kUnitCount);
  const auto has_run = [&](uint32_t end, uint32_t count) {
    uint32_t run = 0;
    for (uint32_t unit = 0; unit < end; ++unit) {
      run = model[unit] ? 0 : run + 1;
      if (run == count) return true;
    }
    return false;
  };
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      const auto count = 1 + static_cast<uint32_t>(random() % 20);
      const auto end =
          static_cast<uint32_t>(random() % 2 == 0 ? kUnitCount : random() % kUnitCount);
      const uint32_t first = map.find_next(end, count);
      CHECK_TEXT((first != PieceMap::kNone) == has_run(end, count), seed.text());
      if (first == PieceMap::kNone) continue;
      CHECK_TEXT(first + count <= end, seed.text());
      for (uint32_t unit = first; unit < first + count; ++unit) {
        CHECK_TEXT(!model[unit] && !map.is_taken(unit), seed.text());
        model[unit] = true;
      }
      map.take(first, count);
      pieces.push_back({first, count});
    } else if (!pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const Piece piece = pieces.back();
      pieces.pop_back();
      map.give_back(piece.first, piece.count);
      for (uint32_t k = 0; k < piece.count; ++k) model[piece.first + k] = false;
    }
    const auto taken = std::count(model.begin(), model.end(), true);
    CHECK_TEXT(map.taken_count() == static_cast<uint32_t>(taken) && map.is_valid(), seed.text());
  }
}
