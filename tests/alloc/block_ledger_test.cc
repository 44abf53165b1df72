// The ledger of blocks, compared with a std::set. Separate processes, with arenas of test memory.
#include "alloc/block_ledger.h"

#include <iterator>
#include <random>
#include <set>

#include <sys/mman.h>

#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

alignas(4096) std::byte arena_memory[4096];

std::span<std::byte> make_arena(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  BP_PROBE_CHECK(memory != MAP_FAILED);
  const std::span<std::byte> arena(static_cast<std::byte*>(memory), bytes);
  BP_PROBE_CHECK(ledger_create(arena));
  return arena;
}

}  // namespace

BP_PROBE(LedgerOfOneBlock) {
  const auto arena = make_arena(4 * kMiB);
  std::byte* block = arena.data() + 4096;
  BP_PROBE_CHECK(!ledger_has(block) && !ledger_leave(block));
  ledger_enter(block);
  BP_PROBE_CHECK(ledger_has(block));
  for (int i = 1; i < 16; ++i) {
    BP_PROBE_CHECK(!ledger_has(block + i) && !ledger_has(block - i));
    BP_PROBE_CHECK(!ledger_leave(block + i) && !ledger_leave(block - i));
    BP_PROBE_CHECK(ledger_block_before(block + i) == block);
    BP_PROBE_CHECK(ledger_block_before(block - i) == nullptr);
  }
  BP_PROBE_CHECK(ledger_block_before(block) == nullptr);
  BP_PROBE_CHECK(ledger_block_before(arena.data()) == nullptr);
  BP_PROBE_CHECK(ledger_block_before(&arena.back()) == block);
  BP_PROBE_CHECK(ledger_leave(block) && !ledger_leave(block) && !ledger_has(block));
}

BP_PROBE(LedgerAtTheEdges) {
  const auto arena = make_arena(4 * kMiB);
  for (std::byte* edge : {arena.data(), arena.data() + arena.size() - 8}) {
    ledger_enter(edge);
    BP_PROBE_CHECK(ledger_has(edge) && ledger_leave(edge));
  }
  for (const std::byte* outside : {arena.data() - 8, arena.data() + arena.size()}) {
    BP_PROBE_CHECK(!ledger_has(outside) && !ledger_leave(outside));
    BP_PROBE_CHECK(ledger_block_before(outside) == nullptr);
  }
  BP_PROBE_CHECK(!ledger_has(nullptr) && !ledger_leave(nullptr));
}

BP_PROBE(LedgerLikeASet) {
  const test::Seed seed;
  std::mt19937_64 dice(seed.value());
  const auto arena = make_arena(4 * kMiB);
  std::set<const std::byte*> model;
  for (int i = 0; i < 50'000; ++i) {
    const std::byte* at = arena.data() + dice() % 4096 * 8;
    switch (dice() % 4) {
      case 0: ledger_enter(at), model.insert(at); break;
      case 1: BP_PROBE_CHECK(ledger_leave(at) == (model.erase(at) == 1)); break;
      case 2: BP_PROBE_CHECK(ledger_has(at) == model.contains(at)); break;
      default: {
        at += dice() % 8;
        const auto next = model.lower_bound(at);
        const std::byte* expected = next == model.begin() ? nullptr : *std::prev(next);
        BP_PROBE_CHECK(ledger_block_before(at) == expected);
      }
    }
  }
}

BP_PROBE(LedgersWithoutEnd) {
  int count = 0;
  while (count < 1000 && ledger_create({arena_memory, sizeof arena_memory})) ++count;
  BP_PROBE_CHECK(count > 0 && count < 1000);
}

TEST_GROUP(BlockLedger){};

TEST(BlockLedger, KnowsABlockByItsFirstByteOnly) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LedgerOfOneBlock);
}
TEST(BlockLedger, CoversItsArenaAndNoMore) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LedgerAtTheEdges);
}
TEST(BlockLedger, IsASet) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LedgerLikeASet);
}
TEST(BlockLedger, TooManyArenasAreRefused) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LedgersWithoutEnd);
}
