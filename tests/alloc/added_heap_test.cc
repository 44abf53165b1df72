// Heap memory that a program adds while it runs.
#include "alloc/added_heap.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <sys/sysinfo.h>

#include "alloc/confined_heap.h"
#include "alloc/exhaustion.h"
#include "alloc/pool_heap.h"
#include "pinned_pool/audit.h"
#include "pinned_pool/pinned_pool.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/hugepages.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::BlockList;

namespace {

// Adds heap memory. Returns the error's answer, or "".
std::string answer(uint64_t bytes, PageSize page = PageSize::k4KiB) {
  const auto added = add_heap(bytes, page);
  return added.ok() ? "" : added.error().answer;
}

bool is_good() {
  PoolMap map;
  process_pool().write_map(&map);
  auto audited = audit_maps(map, 0);
  return audited.ok() && audited.value().ok;
}

// Takes blocks of nearly 1 MiB until malloc fails: debug builds add padding behind each block.
size_t take_all(BlockList& blocks) { return blocks.add_all(1'000'000); }

}  // namespace

BP_PROBE(AddsWhatIsUsedAtOnce) {
  BlockList blocks;
  const size_t before = take_all(blocks);
  BP_PROBE_CHECK(answer(31 * kMiB) == "");
  const Segment& added = process_pool().segment(1);
  BP_PROBE_CHECK(added.bytes == 32 * kMiB && added.owner == kAddedHeapOwner);
  BlockList more;
  BP_PROBE_CHECK(take_all(more) >= 24 && before > 0);
  BP_PROBE_CHECK(answer(kMiB) == "");
  BP_PROBE_CHECK(process_pool().segment(2).bytes == 4 * kMiB);
  BP_PROBE_CHECK(is_good());
}

BP_PROBE(AddsMoreThanARegion) {
  BP_PROBE_CHECK(answer(2 * kGiB + kMiB) == "");
  BP_PROBE_CHECK(test::allocate(kGiB) != nullptr);
  BP_PROBE_CHECK(is_good());
}

BP_PROBE(AddsHugepages) {
  BP_PROBE_CHECK(answer(7 * kMiB, PageSize::k2MiB) == "");
  BP_PROBE_CHECK(process_pool().segment(1).page == PageSize::k2MiB);
  BP_PROBE_CHECK(answer(kTiB / 4, PageSize::k2MiB) == "Cannot allocate memory");
  BP_PROBE_CHECK(process_pool().segment_count() == 2);
  BP_PROBE_CHECK(is_good());
}

BP_PROBE(AddsBesideThreadsThatAllocate) {
  std::atomic<bool> is_over{false};
  std::thread beside([&] {
    while (!is_over) {
      void* block = pool_allocate(100'000, 64);
      if (block != nullptr && !process_pool().contains(block, 100'000)) std::abort();
      pool_free(block);
    }
  });
  std::thread also([] {
    for (int i = 0; i < 20; ++i) BP_PROBE_CHECK(answer(4 * kMiB) == "");
  });
  for (int i = 0; i < 20; ++i) BP_PROBE_CHECK(answer(4 * kMiB) == "");
  also.join();
  is_over = true;
  beside.join();
  BP_PROBE_CHECK(process_pool().segment_count() == 41);
  BP_PROBE_CHECK(heap_arena_count() == 41);
}

BP_PROBE(AddsNothingThatCannotBe) {
  BP_PROBE_CHECK(answer(0) == "this is not a valid heap size");
  BP_PROBE_CHECK(answer(UINT64_MAX) == "this is not a valid heap size");
  BP_PROBE_CHECK(answer(kPoolSpanBytes) == "the pool has no addresses left, or too many segments");
  BP_PROBE_CHECK(refuse_added_heap("a", "b").ok());
  BP_PROBE_CHECK(answer(4 * kMiB) == "");
  BP_PROBE_CHECK(!refuse_added_heap("a", "b").ok());
  process_pool().seal();
  BP_PROBE_CHECK(answer(4 * kMiB) == "the pool is sealed: this process has joined it");
  expect_appliance();
  BP_PROBE_CHECK(answer(4 * kMiB) == "the pool belongs to an appliance, and all of it is planned");
}

BP_PROBE(AddsNothingToAnOrdinaryHeap) {
  BP_PROBE_CHECK(answer(4 * kMiB) ==
                 "malloc hands out ordinary memory, because leave_pinned is no, "
                 "leave_pinned_pipeline is absent");
}

TEST_GROUP(AddedHeap){};

TEST(AddedHeap, IsUsedAtOnceByWhoeverAllocates) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AddsWhatIsUsedAtOnce);
}

TEST(AddedHeap, MayHaveMoreThanARegion) {
  BP_SKIP_UNDER_SANITIZER();
  struct sysinfo machine = {};
  CHECK_EQUAL(0, sysinfo(&machine));
  if (machine.freeram * machine.mem_unit < 4 * kGiB) BP_SKIP("no 4 GiB of memory are free");
  BP_CHECK_PROBE(AddsMoreThanARegion);
}

TEST(AddedHeap, LiesOnThePagesThatWereAskedFor) {
  BP_SKIP_UNDER_SANITIZER();
  const test::LentHugepages lent(4);
  if (!lent.are_there()) BP_SKIP("no 4 free hugepages of 2 MiB");
  BP_CHECK_PROBE(AddsHugepages);
}

TEST(AddedHeap, ComesBesideOthersThatAllocateAndAdd) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AddsBesideThreadsThatAllocate);
}

TEST(AddedHeap, IsRefusedWithItsReason) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AddsNothingThatCannotBe);
  BP_CHECK_PROBE(AddsNothingToAnOrdinaryHeap, "BEDPLATE_LEAVE_PINNED=no");
}
