// Blocks with large alignments: they are served, their memory comes back when they are freed, and
// no memory is given out twice. (The tests reach alloc/aligned_arena.h through the heap.)
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <malloc.h>

#include "alloc/confined_heap.h"
#include "platform/units.h"
#include "tests/alloc/heap_rig.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::is_aligned;
using bedplate::test::keep;

namespace {

void fill(void* block, size_t bytes, int with) { std::memset(keep(block), with, bytes); }

bool is_filled(const void* block, size_t bytes, int with) {
  const auto* text = static_cast<const char*>(block);
  return text[0] == with && std::memcmp(text, text + 1, bytes - 1) == 0;
}

// Checks that as much memory is free as before, except what this thread's heap holds.
void check_nothing_is_lost(uint64_t free_before) {
  BP_PROBE_CHECK(heap_free_bytes() + kHeapGranularityBytes >= free_before);
}

void take_alignments_up_to(size_t largest) {
  std::free(keep(std::malloc(5000)));
  const uint64_t free_before = heap_free_bytes();
  for (size_t alignment = 2 * kMiB; alignment <= largest; alignment *= 2) {
    for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{4 * kMiB}, size_t{9 * kMiB + 1}}) {
      void* blocks[3] = {keep(memalign(alignment, bytes)), nullptr,
                         keep(std::aligned_alloc(alignment, bytes))};
      BP_PROBE_CHECK(posix_memalign(&blocks[1], alignment, bytes) == 0);
      for (int i = 0; i < 3; ++i) {
        BP_PROBE_CHECK(blocks[i] != nullptr && is_aligned(blocks[i], alignment));
        BP_PROBE_CHECK(malloc_usable_size(blocks[i]) >= bytes);
        fill(blocks[i], bytes, i);
      }
      for (int i = 0; i < 3; ++i) BP_PROBE_CHECK(is_filled(blocks[i], bytes, i));
      blocks[1] = keep(std::realloc(blocks[1], bytes * 2));
      BP_PROBE_CHECK(is_filled(blocks[1], bytes, 1));
      std::thread([&] { std::free(blocks[0]); }).join();
      std::free(blocks[1]);
      std::free(blocks[2]);
    }
  }
  check_nothing_is_lost(free_before);
}

}  // namespace

// In the pool: alignments up to the largest that this heap can serve.
BP_PROBE(AlignmentsInThePool) {
  test::boot_heap(256 * kMiB);
  take_alignments_up_to(32 * kMiB);
  // Such allocations also fit between these blocks.
  test::BlockList blocks;
  for (int i = 0; i < 20; ++i) BP_PROBE_CHECK(blocks.add(3 * kMiB));
  take_alignments_up_to(16 * kMiB);
}

// Ordinary memory has 64 GiB of address space, most of which is never touched.
BP_PROBE(AlignmentsInOrdinaryMemory) { take_alignments_up_to(kGiB); }

// Three threads want aligned blocks, of which few fit, and one thread wants blocks without an
// alignment. No memory is given out twice, and none is lost.
BP_PROBE(AlignmentsOfSeveralThreads) {
  test::boot_heap(128 * kMiB);
  const auto take_and_free = [](int number) {
    for (int round = 0; round < 1000; ++round) {
      const size_t alignment = size_t{4 * kMiB} << (round % 4);
      const size_t bytes = 8 * kMiB;
      void* block = number == 0 ? std::malloc(bytes) : memalign(alignment, bytes);
      if (keep(block) == nullptr) continue;  // other threads hold all memory
      BP_PROBE_CHECK(number == 0 || is_aligned(block, alignment));
      auto* text = static_cast<char*>(block);
      for (size_t at = 0; at < bytes; at += kMiB) text[at] = static_cast<char>(number);
      for (size_t at = 0; at < bytes; at += kMiB) BP_PROBE_CHECK(text[at] == number);
      std::free(block);
    }
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) threads.emplace_back(take_and_free, number);
  for (std::thread& thread : threads) thread.join();
  test::find_all_that_is_free();
  BP_PROBE_CHECK(keep(memalign(32 * kMiB, 88 * kMiB)) != nullptr);
}

TEST_GROUP(AlignedArena){};

TEST(AlignedArena, ServesTheHeapInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AlignmentsInThePool);
}

TEST(AlignedArena, ServesUpToOneGiB) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AlignmentsInOrdinaryMemory, "BEDPLATE_LEAVE_PINNED=no");
}

TEST(AlignedArena, GivesNoBlockTwice) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AlignmentsOfSeveralThreads);
}
