// mimalloc in the pool: its arenas, their use, and the memory that comes back to them.
#include "alloc/confined_heap.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <malloc.h>
#include <unistd.h>

#include "alloc/exhaustion.h"
#include "alloc/heap_owner.h"
#include "alloc/metadata_zone.h"
#include "alloc/thread_heaps.h"
#include "pinned_pool/boot_segment.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "tests/alloc/heap_rig.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::allocate;
using bedplate::test::BlockList;
using bedplate::test::boot_heap;

namespace {

bool lies_in(const Segment& segment, const void* block) {
  const auto* byte = static_cast<const std::byte*>(block);
  return byte >= segment.address && byte < segment.address + segment.bytes;
}

uint64_t used_bytes(const Segment& segment) { return heap_used_bytes(segment.memory()); }

// The number of pages in this process's address space.
uint64_t mapped_page_count() {
  const auto count = read_number_file("/proc/self/statm");
  BP_PROBE_CHECK(count.has_value());
  return *count;
}

}  // namespace

TEST_GROUP(ConfinedHeap){};

TEST(ConfinedHeap, SegmentZeroIsTheFirstArena) {
  BP_SKIP_UNDER_SANITIZER();
  const Segment& boot = boot_segment();
  LONGS_EQUAL(1, heap_arena_count());
  const HeapArenaUse use = heap_arena_use(0);
  CHECK(use.address == boot.address);
  CHECK(use.bytes == boot.bytes - kMetadataZoneBytes);
  CHECK(use.used_bytes > 0 && use.used_bytes <= use.bytes);
  LONGS_EQUAL(0, use.used_bytes % kHeapGranularityBytes);
  CHECK(boot.carved_bytes == boot.bytes);
}

TEST(ConfinedHeap, UseGrowsAndShrinksWithABlock) {
  BP_SKIP_UNDER_SANITIZER();
  const uint64_t before = heap_arena_use(0).used_bytes;
  void* block = allocate(40 * kMiB);
  const uint64_t during = heap_arena_use(0).used_bytes;
  std::free(block);
  CHECK(during - before >= 40 * kMiB);
  CHECK(during - before <= 48 * kMiB);
  CHECK(heap_arena_use(0).used_bytes == before);
}

TEST(ConfinedHeap, UseIsToldByAddress) {
  CHECK(heap_used_bytes(std::as_bytes(std::span(&kHeapGranularityBytes, 1))) == 0);
  CHECK(heap_used_bytes(boot_segment().memory().subspan(4096)) == 0);
  if (test::kIsSanitized) return;
  CHECK(heap_used_bytes(boot_segment().memory()) == heap_arena_use(0).used_bytes);
}

TEST(ConfinedHeap, CreatingItAgainDoesNothing) {
  heap_create();
  LONGS_EQUAL(1, process_pool().segment_count());
  LONGS_EQUAL(test::kIsSanitized ? 0 : 1, heap_arena_count());
}

TEST(ConfinedHeap, ArenaThatDoesNotExistIsAProgrammingError) {
  BP_CHECK_DIES("assertion failed: ", (void)heap_arena_use(7));
}

BP_PROBE(HeapAfterBoot) {
  void* early = allocate(100'000);
  const Segment& boot = process_pool().segment(0);
  BP_PROBE_CHECK(lies_in(boot, early));
  std::memset(early, 0x31, 100'000);
  const Segment& heap = boot_heap(64 * kMiB);
  BP_PROBE_CHECK(heap_arena_count() == 2);
  BP_PROBE_CHECK(heap_arena_use(1).address == heap.address);
  BP_PROBE_CHECK(heap_arena_use(1).bytes == 64 * kMiB);
  // mimalloc first fills the pages that it has. A block that does not fit there comes from the heap
  // segment.
  void* late = allocate(6 * kMiB);
  BP_PROBE_CHECK(lies_in(heap, late));
  const uint64_t boot_used = used_bytes(boot);
  BlockList blocks;
  for (int i = 0; i < 16; ++i) BP_PROBE_CHECK(blocks.add(kMiB));
  BP_PROBE_CHECK(used_bytes(boot) == boot_used);
  void* from_thread = nullptr;
  std::thread([&] { from_thread = allocate(1000); }).join();
  BP_PROBE_CHECK(lies_in(heap, from_thread));
  // A block from segment 0 stays valid.
  BP_PROBE_CHECK(static_cast<char*>(early)[99'999] == 0x31);
  early = test::keep(std::realloc(early, 5 * kMiB));
  BP_PROBE_CHECK(lies_in(heap, early));
  BP_PROBE_CHECK(static_cast<char*>(early)[99'999] == 0x31);
  std::free(early);
  std::free(late);
  std::free(from_thread);
}

TEST(ConfinedHeap, AfterBootMemoryComesFromTheHeapSegment) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HeapAfterBoot);
}

BP_PROBE(HeapTakesNothingFromTheSystem) {
  boot_heap(96 * kMiB);
  const uint64_t before = mapped_page_count();
  void* const break_before = sbrk(0);
  for (const size_t bytes : {size_t{100}, size_t{10'000}, size_t{kMiB}, size_t{40 * kMiB}}) {
    BlockList blocks;
    BP_PROBE_CHECK(blocks.add_all(bytes) > 0);
    BP_PROBE_CHECK(mapped_page_count() == before);
  }
  BP_PROBE_CHECK(mapped_page_count() == before && sbrk(0) == break_before);
}

TEST(ConfinedHeap, TakesNothingFromTheSystem) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HeapTakesNothingFromTheSystem);
}

BP_PROBE(ThreadsThatFreeAllTheyTook) {
  const Segment& heap = boot_heap(64 * kMiB);
  const auto use_some = [] {
    BlockList blocks;
    for (int i = 0; i < 100; ++i) BP_PROBE_CHECK(blocks.add(100'000));
  };
  for (int i = 0; i < 4; ++i) std::thread(use_some).join();
  const uint64_t before = used_bytes(heap);
  const uint64_t zone_before = metadata_zone_used_bytes();
  for (int i = 0; i < 300; ++i) std::thread(use_some).join();
  BP_PROBE_CHECK(used_bytes(heap) <= before);
  BP_PROBE_CHECK(metadata_zone_used_bytes() == zone_before);
}

TEST(ConfinedHeap, MemoryOfThreadsThatEndedComesBack) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ThreadsThatFreeAllTheyTook);
}

BP_PROBE(ThreadsThatLeaveBlocksBehind) {
  const Segment& heap = boot_heap(64 * kMiB);
  constexpr int kBlockCount = 40;
  static void* blocks[kBlockCount];
  const auto round = [] {
    std::thread([] {
      for (void*& block : blocks) BP_PROBE_CHECK((block = allocate(400'000)) != nullptr);
    }).join();
    for (void* block : blocks) std::free(block);  // by another thread, after their own has ended
  };
  round();
  // 16 MB in each round: 30 rounds would not fit if the memory of ended threads were lost.
  for (int i = 0; i < 30; ++i) round();
  BP_PROBE_CHECK(used_bytes(heap) <= 32 * kMiB);
  BlockList all;
  BP_PROBE_CHECK(all.add(40 * kMiB));
}

TEST(ConfinedHeap, BlocksThatOutliveTheirThreadComeBack) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ThreadsThatLeaveBlocksBehind);
}

BP_PROBE(ManyThreadsAtOnce) {
  boot_heap(256 * kMiB);
  constexpr unsigned kThreadCount = 60;
  std::atomic<unsigned> served_count{0};
  std::atomic<unsigned> refused_count{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([&] {
      void* block = allocate(100'000);
      (block != nullptr ? served_count : refused_count).fetch_add(1);
      test::eventually([&] { return served_count + refused_count == kThreadCount; });
      std::free(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  BP_PROBE_CHECK(served_count == kThreadCount);
}

TEST(ConfinedHeap, EachThreadNeedsOneGranuleOnly) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ManyThreadsAtOnce);
}

TEST(ConfinedHeap, AThreadGetsTheBlockThatItFreedLast) {
  BP_SKIP_UNDER_SANITIZER();
  void* first = allocate(200);
  void* second = allocate(200);
  std::free(first);
  std::free(second);
  void* again = allocate(200);
  POINTERS_EQUAL(second, again);
  std::free(again);
}

BP_PROBE(HandlerOfRefusals) {
  static int calls = 0;
  static int seen_errno = 0;
  static HeapRefusal seen;
  set_exhaustion_handler([](const HeapRefusal& refusal) {
    ++calls;
    seen_errno = errno;
    seen = refusal;
  });
  const auto is_told = [](int call, size_t bytes, size_t alignment, HeapRefusal::Cause cause) {
    return calls == call && std::exchange(seen_errno, 0) == ENOMEM && seen.bytes == bytes &&
           seen.alignment == alignment && seen.cause == cause;
  };
  using enum HeapRefusal::Cause;
  volatile size_t too_many = kTiB;
  errno = 0;
  BP_PROBE_CHECK(allocate(too_many) == nullptr);
  BP_PROBE_CHECK(is_told(1, kTiB, 0, kNeverFits));
  BP_PROBE_CHECK(allocate(100) != nullptr);
  BP_PROBE_CHECK(calls == 1);
  // The largest block of an empty heap, which this heap cannot serve; then one byte more.
  volatile size_t everything = heap_block_bytes_max();
  BP_PROBE_CHECK(allocate(everything) == nullptr);
  BP_PROBE_CHECK(is_told(2, everything, 0, kExhausted));
  BP_PROBE_CHECK(allocate(everything + 1) == nullptr);
  BP_PROBE_CHECK(is_told(3, everything + 1, 0, kNeverFits));
  // The refusal of an aligned request has the requested size, not the size of the search.
  volatile size_t megabyte = kMiB;
  BP_PROBE_CHECK(test::keep(memalign(megabyte, everything - 2 * kMiB)) == nullptr);
  BP_PROBE_CHECK(is_told(4, everything - 2 * kMiB, kMiB, kExhausted));
  BP_PROBE_CHECK(test::keep(memalign(16 * megabyte, 7)) == nullptr);  // the heap has 12 MiB
  BP_PROBE_CHECK(is_told(5, 7, 16 * kMiB, kNeverFits));
  BP_PROBE_CHECK(test::keep(memalign(2048 * megabyte, 7)) == nullptr);
  BP_PROBE_CHECK(is_told(6, 7, 2 * kGiB, kAlignment));
  BP_PROBE_CHECK(allocate(too_many) == nullptr);
  BP_PROBE_CHECK(is_told(7, kTiB, 0, kNeverFits));
  set_exhaustion_handler(nullptr);
  BP_PROBE_CHECK(allocate(too_many) == nullptr);
  BP_PROBE_CHECK(calls == 7 && errno == ENOMEM);
}

TEST(ConfinedHeap, HandlerIsCalledForEachRefusal) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HandlerOfRefusals);
}

// An empty page is returned once its heap has taken some other pages, also if the page was empty
// for a while, was full, or was not the only page of its size.
BP_PROBE(EmptyPageThatWasFull) {
  constexpr size_t kBytes = 50'000;
  boot_heap(64 * kMiB);
  const HeapOwner owner = heap_owner("heap:pages").take();
  const HeapOwnerScope scope(owner);
  const auto held_bytes = [&] { return heap_owner_use(owner).used_bytes; };
  BlockList page;
  page.add(kBytes);
  size_t count = 1;  // blocks in a page
  for (const uint64_t one = held_bytes(); page.add(kBytes) && held_bytes() == one;) ++count;
  page.free_all();
  return_empty_pages();
  BP_PROBE_CHECK(held_bytes() == 0 && count > 1);
  const auto fill = [&](BlockList& blocks, size_t block_count) {
    for (size_t i = 0; i < block_count; ++i) BP_PROBE_CHECK(blocks.add(kBytes));
  };
  fill(page, count);
  page.free_all();  // the page stays
  BlockList first;
  fill(first, 1);
  fill(page, count - 1);
  BlockList second;
  fill(second, 1);   // in another page
  first.free_all();  // the first page is no longer full
  second.free_all();
  page.free_all();
  BlockList others;
  for (int i = 0; i < 400; ++i) BP_PROBE_CHECK(others.add(9'000));
  const uint64_t before = held_bytes();
  return_empty_pages();
  BP_PROBE_CHECK(held_bytes() == before);
}

TEST(ConfinedHeap, AnEmptyPageGoesOnceOthersAreTaken) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(EmptyPageThatWasFull);
}

// Fills pages with blocks of `block_bytes` in a new thread, which has its own segment. Checks the
// bytes that each page adds to the owner's use.
void check_pages(size_t block_bytes, std::initializer_list<uint64_t> pages_kib) {
  std::thread([&] {
    const HeapOwner owner = heap_owner("heap:pages").take();
    const HeapOwnerScope scope(owner);
    BlockList blocks;
    for (const uint64_t page_kib : pages_kib) {
      const uint64_t before = heap_owner_use(owner).used_bytes;
      while (heap_owner_use(owner).used_bytes == before) BP_PROBE_CHECK(blocks.add(block_bytes));
      BP_PROBE_CHECK(heap_owner_use(owner).used_bytes - before == page_kib * kKiB);
    }
    const uint64_t before = heap_owner_use(owner).used_bytes;
    BP_PROBE_CHECK(blocks.add(2 * block_bytes));  // another size begins with a small page
    BP_PROBE_CHECK(heap_owner_use(owner).used_bytes == before + pages_kib.begin()[0] * kKiB);
  }).join();
}

BP_PROBE(PagesOfAHeapWithMuchOfOneSize) {
  boot_heap(64 * kMiB);
  check_pages(8, {64, 128, 256, 256, 256});
  check_pages(1000, {64, 128, 256, 256, 256});
  check_pages(50'000, {512, 1024, 2048});
}

BP_PROBE(PagesOfAHeapWithLittleLeft) {
  boot_heap(64 * kMiB);
  BlockList most;
  BP_PROBE_CHECK(most.add(50 * kMiB));
  check_pages(1000, {64, 64, 64});
}

TEST(ConfinedHeap, TheMoreOfASizeTheLargerItsPages) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(PagesOfAHeapWithMuchOfOneSize);
}

TEST(ConfinedHeap, PagesDoNotGrowWhereLittleIsLeft) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(PagesOfAHeapWithLittleLeft);
}

#if BP_SANITIZED
TEST(ConfinedHeap, SanitizerBuildsHaveNone) {
  LONGS_EQUAL(0, heap_arena_count());
  CHECK(add_heap_memory({}));
  CHECK(boot_segment().carved_bytes == 0);
}
#endif
