// Buffers of any size from planned memory, compared with a model of the arena's units.
#include <cstdlib>
#include <random>
#include <vector>

#include "apps/blockd/stores/buffer_arena_datapath.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(BufferArena) {
  static constexpr uint64_t kUnit = BufferArena::kUnitBytes;
  std::byte* memory = nullptr;
  BufferArena arena;

  void create(uint64_t units) {
    memory = static_cast<std::byte*>(std::aligned_alloc(kUnit, units * kUnit));
    arena.create({memory, units * kUnit});
  }
  void teardown() override { std::free(memory); }
};

TEST(BufferArena, GivesTheFirstRunThatIsLongEnough) {
  create(100);
  POINTERS_EQUAL(memory, arena.try_take(1));
  POINTERS_EQUAL(memory + kUnit, arena.try_take(2 * kUnit + 1));  // three units
  POINTERS_EQUAL(memory + 4 * kUnit, arena.try_take(kUnit));
  arena.give(memory + kUnit, 2 * kUnit + 1);
  POINTERS_EQUAL(memory + 5 * kUnit, arena.try_take(4 * kUnit));
  POINTERS_EQUAL(memory + kUnit, arena.try_take(3 * kUnit));
  UNSIGNED_LONGS_EQUAL(91 * kUnit, arena.free_bytes());
}

TEST(BufferArena, SaysNoWhenThereIsNoRun) {
  create(70);
  POINTERS_EQUAL(nullptr, arena.try_take(71 * kUnit));
  POINTERS_EQUAL(memory, arena.try_take(70 * kUnit));  // across words, up to the last unit
  POINTERS_EQUAL(nullptr, arena.try_take(1));
  arena.give(memory, 70 * kUnit);
  POINTERS_EQUAL(memory, arena.try_take(34 * kUnit));
  POINTERS_EQUAL(memory + 34 * kUnit, arena.try_take(2 * kUnit));
  arena.give(memory, 34 * kUnit);
  POINTERS_EQUAL(nullptr, arena.try_take(35 * kUnit));  // enough units, but not side by side
}

TEST(BufferArena, ABufferComesBackOnce) {
  create(70);
  std::byte* const buffer = arena.try_take(2 * kUnit);
  arena.try_take(2 * kUnit);
  arena.give(buffer, 2 * kUnit);
  BP_CHECK_DIES("kIsTaken ? 0 : mask", arena.give(buffer, 2 * kUnit));
  BP_CHECK_DIES("buffer < memory_.data() + memory_.size()", arena.give(memory + 70 * kUnit, 1));
}

#if BP_DEBUG
TEST(BufferArena, ABufferComesBackAsItWasTaken) {
  create(70);
  std::byte* const last = arena.try_take(70 * kUnit) + 69 * kUnit;
  BP_CHECK_DIES("% kUnitBytes == 0", arena.give(last + 512, kUnit));
  BP_CHECK_DIES("count <= unit_count_ - first", arena.give(last, 2 * kUnit));
}
#endif

TEST(BufferArena, AnyBuffersAreApartAndComeBack) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  const uint64_t units = 200 + random() % 100;
  create(units);
  std::vector<bool> is_taken(units);
  struct Taken {
    std::byte* buffer;
    uint64_t bytes;
  };
  std::vector<Taken> all;
  bool good = true;
  for (int round = 0; round < 20'000 && good; ++round) {
    if (random() % 2 == 0 && !all.empty()) {
      const size_t which = random() % all.size();
      const auto begin = static_cast<uint64_t>(all[which].buffer - memory) / kUnit;
      for (uint64_t i = 0; i * kUnit < all[which].bytes; ++i) is_taken[begin + i] = false;
      arena.give(all[which].buffer, all[which].bytes);
      all[which] = all.back();
      all.pop_back();
      continue;
    }
    const uint64_t bytes = 1 + random() % (kUnit << random() % 8);
    const uint64_t count = (bytes + kUnit - 1) / kUnit;
    uint64_t run = 0;
    uint64_t first = units;
    for (uint64_t i = 0; i < units && first == units; ++i) {
      run = is_taken[i] ? 0 : run + 1;
      if (run == count) first = i + 1 - count;
    }
    std::byte* const buffer = arena.try_take(bytes);
    good = buffer == (first == units ? nullptr : memory + first * kUnit);
    if (!good || buffer == nullptr) continue;
    for (uint64_t i = 0; i < count; ++i) is_taken[first + i] = true;
    all.push_back({buffer, bytes});
  }
  CHECK_TEXT(good && arena.is_valid(), seed.text());
}
