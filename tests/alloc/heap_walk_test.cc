// Walks through the heap: their results, alone and while other threads allocate.
#include "alloc/heap_walk.h"

#include <atomic>
#include <thread>

#include "alloc/confined_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "tests/alloc/heap_rig.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::allocate;
using bedplate::test::BlockList;
using bedplate::test::boot_heap;

namespace {

// The size class of blocks of `bytes`. The last class has the large blocks.
HeapClassUse class_of(uint64_t bytes) {
  const HeapWalk walk = walk_heap();
  for (size_t i = 0; i < walk.class_count; ++i) {
    if (walk.classes[i].block_bytes >= bytes) return walk.classes[i];
  }
  return walk.class_count > 0 && walk.classes[walk.class_count - 1].block_bytes == 0
             ? walk.classes[walk.class_count - 1]
             : HeapClassUse{};
}

}  // namespace

BP_PROBE(WalkCountsBlocks) {
  boot_heap(64 * kMiB);
  std::thread thread([] {
    BlockList blocks;
    for (int i = 0; i < 1000; ++i) blocks.add(7000);
    const HeapClassUse full = class_of(7000);
    BP_PROBE_CHECK(full.block_bytes >= 7000 && full.block_bytes <= 8192 + 64);
    BP_PROBE_CHECK(full.used_bytes == 1000 * full.block_bytes);
    BP_PROBE_CHECK(full.free_bytes < 512 * kKiB);  // the rest of the last page
    BlockList other;
    other.add(7000);
    const uint64_t used = class_of(7000).used_bytes;
    BP_PROBE_CHECK(used == 1001 * full.block_bytes);
    blocks.free_all();
    const HeapClassUse empty = class_of(7000);
    BP_PROBE_CHECK(empty.used_bytes == empty.block_bytes);
    BP_PROBE_CHECK(empty.free_bytes > 0);
  });
  thread.join();
}

BP_PROBE(WalkSeesTheLargestPiece) {
  boot_heap(64 * kMiB);
  const HeapWalk before = walk_heap();
  BP_PROBE_CHECK(before.free_bytes == heap_free_bytes());
  BlockList blocks;
  BP_PROBE_CHECK(blocks.add(before.largest_free_bytes - kMiB));  // a block has a header
  const HeapWalk full = walk_heap();
  BP_PROBE_CHECK(full.free_bytes == before.free_bytes - before.largest_free_bytes);
  BP_PROBE_CHECK(full.classes[full.class_count - 1].block_bytes == 0);
  BP_PROBE_CHECK(full.classes[full.class_count - 1].used_bytes >= before.largest_free_bytes - kMiB);
  blocks.free_all();
  BP_PROBE_CHECK(walk_heap().largest_free_bytes == before.largest_free_bytes);
}

BP_PROBE(WalkWhileOthersAllocate) {
  boot_heap(64 * kMiB);
  std::atomic<bool> is_over{false};
  std::thread threads[3];
  for (std::thread& thread : threads) {
    thread = std::thread([&is_over] {
      for (size_t round = 1; !is_over; ++round) {
        BlockList blocks;
        for (size_t bytes = 8; bytes < 6 * kMiB; bytes = bytes * 3 + round % 7) blocks.add(bytes);
      }
    });
  }
  uint64_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    const HeapWalk walk = walk_heap();
    uint64_t sum = walk.free_bytes;
    for (size_t c = 0; c < walk.class_count; ++c) {
      sum += walk.classes[c].used_bytes + walk.classes[c].free_bytes;
    }
    most = std::max(most, sum);
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  // The heap changes during a walk, but the sums stay plausible.
  BP_PROBE_CHECK(most > 0 && most < 2 * 64 * kMiB);
}

TEST_GROUP(HeapWalk){};

TEST(HeapWalk, CountsTheBlocksOfEachClass) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(WalkCountsBlocks);
}

TEST(HeapWalk, KnowsTheLargestPiece) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(WalkSeesTheLargestPiece);
}

TEST(HeapWalk, MayBeMadeWhileOthersAllocate) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(WalkWhileOthersAllocate);
}
