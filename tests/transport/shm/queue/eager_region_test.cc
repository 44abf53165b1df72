// The eager region, compared with a model that knows every byte.
#include "transport/shm/queue/eager_region_datapath.h"

#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(EagerRegion) {
  static constexpr uint64_t kBytes = 4096;
  static constexpr uint32_t kPeerCount = 64;
  alignas(8) std::byte memory[kBytes];
  EagerRegion region{memory, kPeerCount, 0};

  static bool always(const EagerRegion::Use&) { return true; }
  void use(const EagerRegion::Piece& piece, uint32_t member, uint64_t index = 0) {
    region.set_use(piece, {member, index});
  }
};

TEST(EagerRegion, GivesPiecesThatDoNotMeet) {
  const EagerRegion::Piece one = region.try_take(100, 0);
  const EagerRegion::Piece two = region.try_take(1, 0);
  POINTERS_EQUAL(memory + one.offset, one.memory);
  LONGS_EQUAL(0, one.offset);
  LONGS_EQUAL(128, two.offset);
  LONGS_EQUAL(192, region.try_take(0, 0).offset);  // no bytes take a line, too, for an address
  CHECK_FALSE(region.is_idle());
}

TEST(EagerRegion, AllOfItIsOnePiece) {
  const EagerRegion::Piece all = region.try_take(kBytes, 0);
  LONGS_EQUAL(0, all.offset);
  POINTERS_EQUAL(nullptr, region.try_take(1, 0).memory);
  region.cancel(all);
  CHECK(region.is_idle());
  CHECK(region.try_take(kBytes, 0).memory != nullptr);
}

TEST(EagerRegion, RefusesWhatIsLongerThanItIs) {
  POINTERS_EQUAL(nullptr, region.try_take(kBytes + 1, 0).memory);
  POINTERS_EQUAL(nullptr, region.try_take(UINT64_MAX - 63, 0).memory);
  CHECK(region.is_idle());
}

TEST(EagerRegion, HasSoManyPiecesAndNoMore) {
  for (uint32_t i = 0; i < EagerRegion::kPieceCountMax; ++i) {
    const EagerRegion::Piece piece = region.try_take(1, i);
    CHECK(piece.memory != nullptr);
    use(piece, i);
  }
  POINTERS_EQUAL(nullptr, region.try_take(1, 0).memory);
  region.reclaim([](const EagerRegion::Use& piece) { return piece.member == 63; });
  CHECK(region.try_take(1, 63).memory != nullptr);
}

// A peer that consumes nothing gets the bytes before the reserve. Other peers get the reserve.
TEST(EagerRegion, TheReserveIsForPeersThatHoldNothing) {
  constexpr uint64_t kReserveBytes = kBytes / 4;
  EagerRegion shared{memory, kPeerCount, kReserveBytes};
  const auto take = [&](uint64_t bytes, uint32_t peer) {
    const EagerRegion::Piece piece = shared.try_take(bytes, peer);
    if (piece.memory != nullptr) shared.set_use(piece, {peer, 0});
    return piece;
  };
  uint64_t taken_bytes = 0;
  while (take(256, 1).memory != nullptr) taken_bytes += 256;
  LONGS_EQUAL(kBytes - kReserveBytes, taken_bytes);
  const EagerRegion::Piece whole = take(kReserveBytes, 2);
  LONGS_EQUAL(kBytes - kReserveBytes, whole.offset);
  POINTERS_EQUAL(nullptr, take(1, 3).memory);
  // A peer that holds a piece of the reserve gets no other piece, even where there is space:
  // otherwise it could get all.
  shared.reclaim([](const EagerRegion::Use& use) { return use.member == 1; });
  POINTERS_EQUAL(nullptr, take(1, 2).memory);
  CHECK(take(1, 3).memory != nullptr);
  shared.reclaim([](const EagerRegion::Use& use) { return use.member == 2; });
  CHECK(shared.is_valid());
  CHECK(take(1, 2).memory != nullptr);
}

TEST(EagerRegion, TheLastPiecesAreForPeersThatHoldNone) {
  for (uint32_t i = 0; i < EagerRegion::kPieceCountMax - EagerRegion::kPieceReserveCount; ++i) {
    const EagerRegion::Piece piece = region.try_take(1, 1);
    CHECK(piece.memory != nullptr);
    use(piece, 1);
  }
  POINTERS_EQUAL(nullptr, region.try_take(1, 1).memory);
  const EagerRegion::Piece others = region.try_take(1, 2);
  CHECK(others.memory != nullptr);
  use(others, 2);
  POINTERS_EQUAL(nullptr, region.try_take(1, 2).memory);
}

// The record of an operation counts as held by its peer, although reclaim() skips it.
TEST(EagerRegion, WhatIsHeldCountsUntilItIsCancelled) {
  const EagerRegion::Piece held = region.try_take(64, 1);
  region.hold(held, 1);
  region.reclaim(always);
  CHECK_FALSE(region.is_idle());
  region.cancel(held);
  CHECK(region.is_idle());
}

TEST(EagerRegion, KeepsWhatHasNoUseYet) {
  const EagerRegion::Piece unsaid = region.try_take(64, 0);
  use(region.try_take(64, 0), 1);
  region.reclaim(always);
  CHECK_FALSE(region.is_idle());
  region.cancel(unsaid);
  CHECK(region.is_idle());
}

TEST(EagerRegion, ReclaimAsksAboutEachUse) {
  for (uint64_t i = 0; i < 5; ++i) use(region.try_take(64, 0), 2, i);
  std::vector<uint64_t> asked;
  region.reclaim([&](const EagerRegion::Use& piece) {
    LONGS_EQUAL(2, piece.member);
    asked.push_back(piece.index);
    return piece.index != 3;
  });
  LONGS_EQUAL(5, asked.size());
  region.reclaim(always);
  CHECK(region.is_idle());
}

TEST(EagerRegion, SmallestAndLargest) {
  EagerRegion one_line{std::span(memory, kCacheLineBytes), 1, 0};
  CHECK(one_line.try_take(64, 0).memory != nullptr);
  POINTERS_EQUAL(nullptr, one_line.try_take(1, 0).memory);
  auto* large = static_cast<std::byte*>(
      std::aligned_alloc(kCacheLineBytes, EagerRegion::kLineCountMax * kCacheLineBytes));
  EagerRegion most{{large, EagerRegion::kLineCountMax * kCacheLineBytes}, 1, 0};
  CHECK(most.try_take(EagerRegion::kLineCountMax * kCacheLineBytes, 0).memory != nullptr);
  POINTERS_EQUAL(nullptr, most.try_take(1, 0).memory);
  std::free(large);
}

TEST(EagerRegion, RandomAgainstAModel) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::vector<int64_t> owner(kBytes, -1);
  struct Taken {
    EagerRegion::Piece piece;
    uint64_t bytes;
  };
  std::map<int64_t, Taken> model;
  for (int64_t i = 0; i < 50000; ++i) {
    if (random() % 3 != 0) {
      const uint64_t bytes = random() % 10 == 0 ? random() % kBytes : random() % 200;
      const EagerRegion::Piece piece = region.try_take(bytes, 0);
      if (piece.memory == nullptr) {
        // The region is really full: no run of free lines is that long, or no piece is left.
        uint64_t run = 0;
        uint64_t longest = 0;
        for (uint64_t at = 0; at < kBytes; ++at) {
          run = owner[at] == -1 ? run + 1 : 0;
          longest = std::max(longest, run);
        }
        CHECK_TEXT(longest < align_up(std::max<uint64_t>(bytes, 1), kCacheLineBytes) ||
                       model.size() == EagerRegion::kPieceCountMax,
                   seed.text());
        continue;
      }
      const uint64_t end = piece.offset + align_up(std::max<uint64_t>(bytes, 1), kCacheLineBytes);
      CHECK_TEXT(end <= kBytes, seed.text());
      for (uint64_t at = piece.offset; at < end; ++at) {
        CHECK_TEXT(owner[at] == -1, seed.text());
        owner[at] = i;
      }
      use(piece, 1, static_cast<uint64_t>(i));
      model[i] = {piece, end - piece.offset};
    } else if (!model.empty()) {
      auto gone = model.begin();
      std::advance(gone, random() % model.size());
      const auto index = static_cast<uint64_t>(gone->first);
      region.reclaim([&](const EagerRegion::Use& piece) { return piece.index == index; });
      std::fill_n(owner.begin() + static_cast<int64_t>(gone->second.piece.offset),
                  gone->second.bytes, -1);
      model.erase(gone);
    }
    CHECK_TEXT(region.is_valid(), seed.text());
  }
}
