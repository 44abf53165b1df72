// Owners of heap memory: their use, limits and reserves, and the handler for low memory.
#include "alloc/heap_owner.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "alloc/confined_heap.h"
#include "alloc/exhaustion.h"
#include "alloc/heap_walk.h"
#include "alloc/pool_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/clock.h"
#include "tests/alloc/heap_rig.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr size_t kBlock = 40'000;

HeapOwner owner_with_limit(const char* name, uint64_t bytes) {
  const HeapOwner owner = heap_owner(name).take();
  limit_heap_owner(owner, bytes);
  return owner;
}

uint64_t bytes_in_blocks() {
  const HeapWalk walk = walk_heap();
  uint64_t bytes = 0;
  for (size_t i = 0; i < walk.class_count; ++i) bytes += walk.classes[i].used_bytes;
  return bytes;
}

}  // namespace

BP_PROBE(AReserveIsItsOwnersAlone) {
  auto heap = process_pool().create_segment("heap", 48 * kMiB, PageSize::k4KiB, 1);
  const std::span<std::byte> memory = heap.value()->memory();
  const HeapOwner keeper = heap_owner("heap:keeper").take();
  const HeapOwner greedy = heap_owner("heap:greedy").take();
  BP_PROBE_CHECK(add_heap_memory(memory.subspan(16 * kMiB)));
  BP_PROBE_CHECK(add_heap_reserve(memory.first(8 * kMiB), kRuntimeOwner));
  BP_PROBE_CHECK(add_heap_reserve(memory.subspan(8 * kMiB, 8 * kMiB), keeper));
  retire_boot_heap();
  test::StderrCapture capture;
  { const HeapOwnerScope scope(keeper); }  // creates the thread's heap of that owner
  BlockList hoard;
  {
    const HeapOwnerScope scope(greedy);
    hoard.add_all(kBlock);
    hoard.add_all(64);
    BP_PROBE_CHECK(allocate(64) == nullptr);
    {
      const HeapOwnerScope kept(keeper);
      for (int i = 0; i < 16; ++i) BP_PROBE_CHECK(allocate(128 * kKiB) != nullptr);
    }
    BP_PROBE_CHECK(allocate(kBlock) == nullptr);
    hoard.free_all();
  }
  capture.finish();
  BP_PROBE_CHECK(heap_owner_use(keeper).used_bytes >= 2 * kMiB);
}

BP_PROBE(ACallbackFollowsWhoAskedForIt) {
  const HeapOwner asker = heap_owner("heap:asker").take();
  const HeapOwner other = heap_owner("heap:other").take();
  follow_heap_owner(asker);
  BP_PROBE_CHECK(current_heap_owner().index == asker.index);
  follow_heap_owner(kUnnamedOwner);
  BP_PROBE_CHECK(current_heap_owner().index == asker.index);
  {
    const HeapOwnerScope scope(other);
    BP_PROBE_CHECK(current_heap_owner().index == other.index);
  }
  BP_PROBE_CHECK(current_heap_owner().index == asker.index);
}

BP_PROBE(LimitRefusesItsOwnerAlone) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  constexpr uint64_t kLimit = 16 * kMiB;
  const HeapOwner greedy = owner_with_limit("heap:greedy", kLimit);
  test::StderrCapture capture;
  BlockList hoard;
  {
    const HeapOwnerScope scope(greedy);
    const size_t count = hoard.add_all(kBlock);
    BP_PROBE_CHECK(errno == ENOMEM);
    BP_PROBE_CHECK(count * kBlock > kLimit / 2 && count * kBlock <= kLimit);
    BP_PROBE_CHECK(allocate(9 * kMiB) == nullptr);  // a huge block counts as well
  }
  // A size that no heap could serve is not refused because of the limit.
  volatile size_t absurd = SIZE_MAX / 2 + 1;
  BP_PROBE_CHECK(allocate(absurd) == nullptr);
  const HeapOwnerUse use = heap_owner_use(greedy);
  BP_PROBE_CHECK(use.used_bytes <= kLimit && use.used_bytes > kLimit - kMiB);
  BP_PROBE_CHECK(use.peak_bytes == use.used_bytes);
  BP_PROBE_CHECK(heap_peak_bytes() >= use.peak_bytes && heap_peak_bytes() < 64 * kMiB);
  BP_PROBE_CHECK(use.refused_count == 2 && exhaustion_count() == 3);
  const std::string said = capture.text();
  capture.finish();
  BP_PROBE_CHECK(said.find("bedplate: allocating 40000 bytes for heap:greedy: it uses ") !=
                 std::string::npos);
  BP_PROBE_CHECK(said.find(" of its limit of 16 MiB; free memory, or raise bytes in its "
                           "[[limit]]") != std::string::npos);
  // Other owners are not affected.
  BlockList others;
  BP_PROBE_CHECK(others.add(24 * kMiB));
  // The owner can take as much again as it frees.
  hoard.free_all();
  const HeapOwnerScope scope(greedy);
  BP_PROBE_CHECK(hoard.add(9 * kMiB));
}

// Near a limit, further pages of one block size do not grow: other sizes need the memory.
BP_PROBE(LimitNearAGrownPage) {
  boot_heap(64 * kMiB);
  constexpr uint64_t kLimit = kMiB;
  const HeapOwner owner = owner_with_limit("heap:small", kLimit);
  std::thread([owner] {  // it has its own segment, with free space
    const HeapOwnerScope scope(owner);
    const auto held_bytes = [owner] { return heap_owner_use(owner).used_bytes; };
    BlockList blocks;
    while (held_bytes() <= 64 * kKiB) BP_PROBE_CHECK(blocks.add(1000));
    BP_PROBE_CHECK(held_bytes() == 128 * kKiB);
    const size_t count = blocks.add_all(1000);
    BP_PROBE_CHECK(held_bytes() == kLimit && heap_owner_use(owner).refused_count == 1);
    BP_PROBE_CHECK(count * 1000 > kLimit * 3 / 4);
  })
      .join();
}

BP_PROBE(LimitHoldsForAllThreads) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  const HeapOwner owner = owner_with_limit("heap:many", 16 * kMiB);
  BlockList lists[4];
  {
    std::thread threads[4];
    for (int i = 0; i < 4; ++i) {
      threads[i] = std::thread([&, i] {
        const HeapOwnerScope scope(owner);
        lists[i].add_all(kBlock);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Memory that ended threads left behind still counts for the owner.
  const uint64_t used = heap_owner_use(owner).used_bytes;
  BP_PROBE_CHECK(used <= 16 * kMiB && used > 12 * kMiB);
  for (BlockList& list : lists) list.free_all();
  find_all_that_is_free();
  BP_PROBE_CHECK(heap_owner_use(owner).used_bytes == 0);
  BP_PROBE_CHECK(heap_owner_use(owner).peak_bytes >= used);
  BP_PROBE_CHECK(heap_owner_use(owner).peak_bytes <= 16 * kMiB);
}

BP_PROBE(ChargeFollowsTheOwnerWhoeverFrees) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  const HeapOwner first = heap_owner("heap:first").take();
  const HeapOwner second = heap_owner("heap:second").take();
  BlockList blocks;
  {
    const HeapOwnerScope outer(first);
    blocks.add_all(size_t{300});
    blocks.free_all();
    for (int i = 0; i < 1000; ++i) blocks.add(kBlock);
    const HeapOwnerScope inner(second);
    BP_PROBE_CHECK(heap_owner_use(first).used_bytes >= 1000 * kBlock);
    BP_PROBE_CHECK(heap_owner_use(second).used_bytes == 0);
    blocks.free_all();  // in the second owner's scope
    BP_PROBE_CHECK(heap_owner_use(first).used_bytes < 1000 * kBlock);
    blocks.add(kBlock);
  }
  BP_PROBE_CHECK(heap_owner_use(second).used_bytes > 0);
  find_all_that_is_free();
  blocks.free_all();
  find_all_that_is_free();
}

BP_PROBE(ChildEntersAnOwner) {
  const HeapOwner owner = heap_owner("heap:child").take();
  const uint64_t used_bytes = bytes_in_blocks();
  const test::Ended ended = test::run_forked([&] {
    const HeapOwnerScope scope(owner);
    std::free(allocate(100));
  });
  BP_PROBE_CHECK(ended.exit_code == 0);
  // The child shares the heap's records, and must not change them.
  BP_PROBE_CHECK(bytes_in_blocks() == used_bytes);
}

BP_PROBE(ReserveIsTheRuntimes) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  BlockList all;
  for (size_t bytes = 16 * kMiB; bytes >= 16; bytes /= 2) all.add_all(bytes);
  BP_PROBE_CHECK(allocate(16) == nullptr);
  BlockList mine;
  {
    const HeapOwnerScope scope(kRuntimeOwner);
    for (int i = 0; i < 1000; ++i) BP_PROBE_CHECK(mine.add(1000));
    BP_PROBE_CHECK(mine.add(2 * kMiB));
    BP_PROBE_CHECK(allocate(kHeapReserveBytes) == nullptr);  // the reserve is limited, too
  }
  BP_PROBE_CHECK(allocate(16) == nullptr);
}

BP_PROBE(LowMemoryCanBeShed) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  struct Cache {
    BlockList blocks;
    int calls = 0;
  } cache;
  for (int i = 0; i < 20; ++i) BP_PROBE_CHECK(cache.blocks.add(kMiB));
  set_low_memory_handler(
      16 * kMiB,
      [](void* context) {
        auto* shed = static_cast<Cache*>(context);
        ++shed->calls;
        if (shed->calls > 1) shed->blocks.free_all();
      },
      &cache);
  BP_PROBE_CHECK(cache.calls == 0);
  BlockList load;
  while (cache.calls == 0) BP_PROBE_CHECK(load.add(kMiB));
  BP_PROBE_CHECK(heap_free_bytes() < 16 * kMiB && heap_free_bytes() >= 8 * kMiB);
  for (int i = 0; i < 4; ++i) BP_PROBE_CHECK(load.add(kMiB));
  BP_PROBE_CHECK(cache.calls == 1);  // called once
  // This request succeeds only with the memory that the second call frees.
  BP_PROBE_CHECK(load.add(16 * kMiB));
  BP_PROBE_CHECK(cache.calls >= 2);
  set_low_memory_handler(0, nullptr, nullptr);
  load.add_all(kMiB);
}

TEST_GROUP(HeapOwner){};

TEST(HeapOwner, HasOneNameAndOneNumber) {
  HeapOwner found;
  CHECK(!find_heap_owner("heap:test-owner", &found));
  const HeapOwner owner = heap_owner("heap:test-owner").take();
  CHECK(find_heap_owner("heap:test-owner", &found));
  LONGS_EQUAL(owner.index, found.index);
  LONGS_EQUAL(owner.index, heap_owner("heap:test-owner").take().index);
  STRCMP_EQUAL("heap:test-owner", heap_owner_use(owner).name.text);
  CHECK(heap_owner_use(owner).limit_bytes == kNoLimit);
}

TEST(HeapOwner, OfTheFirstThreeHasItsFixedName) {
  STRCMP_EQUAL("heap", heap_owner_use(kUnnamedOwner).name.text);
  STRCMP_EQUAL("boot", heap_owner_use(kBootOwner).name.text);
  STRCMP_EQUAL("heap:runtime", heap_owner_use(kRuntimeOwner).name.text);
}

BP_PROBE(TooManyHeapOwners) {
  for (uint32_t i = heap_owner_count(); i < kHeapOwnerCountMax; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "heap:%u", i);
    BP_PROBE_CHECK(heap_owner(name).ok());
  }
  const Result<HeapOwner> refused = heap_owner("heap:one-more");
  BP_PROBE_CHECK(!refused.ok());
  BP_PROBE_CHECK(
      std::strcmp(refused.error().doing, "naming heap:one-more as an owner of heap memory") == 0);
  BP_PROBE_CHECK(heap_owner("heap:7").ok());
}

TEST(HeapOwner, OneTooManyIsAnError) { BP_CHECK_PROBE(TooManyHeapOwners); }

TEST(HeapOwner, ScopesNest) {
  const HeapOwner owner = heap_owner("heap:nested").take();
  {
    const HeapOwnerScope scope(owner);
    LONGS_EQUAL(owner.index, enter_heap_owner(owner).index);
  }
  LONGS_EQUAL(kUnnamedOwner.index, enter_heap_owner(kUnnamedOwner).index);
}

TEST(HeapOwner, HasAReserveForItselfAlone) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AReserveIsItsOwnersAlone);
}

TEST(HeapOwner, IsFollowedByWhatIsCalledBack) { BP_CHECK_PROBE(ACallbackFollowsWhoAskedForIt); }

TEST(HeapOwner, AtItsLimitIsRefusedAlone) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LimitRefusesItsOwnerAlone);
}

TEST(HeapOwner, HasAllOfItsLimitThoughPagesGrow) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LimitNearAGrownPage);
}

TEST(HeapOwner, OfManyThreadsHasOneLimit) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LimitHoldsForAllThreads);
}

TEST(HeapOwner, IsChargedWhoeverFrees) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ChargeFollowsTheOwnerWhoeverFrees);
}

TEST(HeapOwner, EnteredByAForkedChildLeavesItsParentsHeapAlone) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ChildEntersAnOwner);
}

TEST(HeapOwner, RuntimeAloneHasTheReserve) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ReserveIsTheRuntimes);
}

TEST(HeapOwner, LowMemoryIsToldAndCanBeShed) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LowMemoryCanBeShed);
}
