// Frees of pointers that are no blocks (alloc/heap_calls.h): debug builds stop, hardened builds
// continue with a sound heap, and release builds refuse at least pointers outside the pool.
#include "alloc/bad_pointer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/confined_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/clock.h"
#include "tests/alloc/heap_rig.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

#undef new  // CppUTest's macro

using namespace bedplate;
using bedplate::test::allocate;
using bedplate::test::keep;

namespace {

alignas(64) char static_data[4096];

char* bytes_of(void* block) { return static_cast<char*>(block); }

// Takes blocks of many sizes in two threads, and checks that no blocks overlap.
void expect_sound_heap() {
  const auto use = [] {
    constexpr size_t kCount = 4000;
    static thread_local unsigned char* blocks[kCount];
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < kCount; ++i) {
        const size_t bytes = 8 + i * 37 % 300;
        blocks[i] = static_cast<unsigned char*>(allocate(bytes));
        BP_PROBE_CHECK(blocks[i] != nullptr);
        std::memset(blocks[i], static_cast<int>(i & 0xff), bytes);
      }
      for (size_t i = 0; i < kCount; ++i) {
        const size_t bytes = 8 + i * 37 % 300;
        BP_PROBE_CHECK(std::all_of(blocks[i], blocks[i] + bytes,
                                   [&](unsigned char byte) { return byte == (i & 0xff); }));
        std::free(blocks[i]);
      }
    }
  };
  std::thread other(use);
  use();
  other.join();
  void* large = allocate(2 * kMiB);  // it has its own pages; a probe's heap has 16 MiB
  BP_PROBE_CHECK(large != nullptr);
  std::memset(large, 1, 2 * kMiB);
  std::free(large);
}

// Checks that `count` pointers were refused, and that the heap is sound.
void expect_refused(uint64_t count) {
  BP_PROBE_CHECK(bad_pointer_count() == count);
  expect_sound_heap();
  BP_PROBE_CHECK(bad_pointer_count() == count);
}

void check_reported(const char* probe, const char* words) {
  const test::Ended ended = test::run_fresh(probe);
  CHECK_TEXT(ended.said(words), ended.text);
  CHECK_TEXT(ended.said("; correct the program: "), ended.text);
  CHECK_TEXT(ended.said("  called from "), ended.text);
  if (BP_DEBUG) {
    LONGS_EQUAL(SIGABRT, ended.signal);
  } else {
    test::check_probe(ended, probe, __FILE__, __LINE__);
  }
}

#define SKIP_WITHOUT_LEDGER() \
  BP_SKIP_UNDER_SANITIZER();  \
  if (!kKeepsLedger) BP_SKIP("release builds keep no ledger of blocks")

}  // namespace

TEST_GROUP(BadPointer){};

// ---- Outside the pool: refused in every build ----

BP_PROBE(FreesTheStack) {
  alignas(16) char local[64];
  std::free(keep(local));
  expect_refused(1);
}
TEST(BadPointer, OnTheStack) {
  BP_SKIP_UNDER_SANITIZER();
  check_reported("FreesTheStack", ": it does not belong to the pool; ");
}

BP_PROBE(FreesStaticData) {
  std::free(keep(static_data + 64));
  std::free(keep(static_data + 1));
  expect_refused(2);
}
TEST(BadPointer, InStaticData) {
  BP_SKIP_UNDER_SANITIZER();
  check_reported("FreesStaticData", ": it does not belong to the pool; ");
}

BP_PROBE(FreesAMapping) {
  void* mapped = mmap(nullptr, kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::free(keep(mapped));
  std::free(keep(reinterpret_cast<void*>(uintptr_t{8})));
  expect_refused(2);
}
TEST(BadPointer, OfAMappingOfTheProgram) {
  BP_SKIP_UNDER_SANITIZER();
  check_reported("FreesAMapping", "freeing 0x");
}

BP_PROBE(ReallocatesTheStack) {
  alignas(16) char local[64] = "untouched";
  errno = 0;
  BP_PROBE_CHECK(keep(std::realloc(keep(local), 100)) == nullptr && errno == EINVAL);
  BP_PROBE_CHECK(std::strcmp(local, "untouched") == 0);
  expect_refused(1);
}
TEST(BadPointer, ReallocOfOneIsRefused) {
  BP_SKIP_UNDER_SANITIZER();
  check_reported("ReallocatesTheStack", "reallocating 0x");
}

BP_PROBE(AsksForTheSizeOfTheStack) {
  alignas(16) char local[64];
  BP_PROBE_CHECK(malloc_usable_size(keep(local)) == 0);
  expect_refused(1);
}
TEST(BadPointer, HasNoUsableSize) {
  BP_SKIP_UNDER_SANITIZER();
  check_reported("AsksForTheSizeOfTheStack", "asking for the usable size of 0x");
}

BP_PROBE(FreesTheStackWithAnOrdinaryHeap) {
  void* block = allocate(100);
  BP_PROBE_CHECK(!in_pool_range(block));
  std::free(keep(std::realloc(block, 200)));
  BP_PROBE_CHECK(bad_pointer_count() == 0);
  alignas(16) char local[64];
  std::free(keep(local));
  expect_refused(1);
}
TEST(BadPointer, OfAnOrdinaryHeapIsKnownToo) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended =
      test::run_fresh("FreesTheStackWithAnOrdinaryHeap", {"BEDPLATE_LEAVE_PINNED=no"});
  CHECK_TEXT(ended.said(": it does not belong to the pool; "), ended.text);
  LONGS_EQUAL(BP_DEBUG ? SIGABRT : 0, ended.signal);
  LONGS_EQUAL(BP_DEBUG ? -1 : 0, ended.exit_code);
}

// ---- Inside the pool: detected by the ledger ----

BP_PROBE(FreesTwice) {
  void* block = allocate(64);
  void* again = keep(block);
  std::free(block);
  std::free(again);
  expect_refused(1);
}
TEST(BadPointer, SecondFree) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesTwice", ": the block that began there, of boot and the size class of ");
}

BP_PROBE(FreesTwiceWithAnotherBetween) {
  void* first = allocate(64);
  void* again = keep(first);
  void* second = allocate(64);
  std::free(first);
  std::free(second);
  std::free(again);
  expect_refused(1);
}
TEST(BadPointer, SecondFreeWithAnotherBetween) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesTwiceWithAnotherBetween", "is already free");
}

BP_PROBE(FreesTwiceFromTwoThreads) {
  void* block = allocate(64);
  void* again = keep(block);
  std::thread([=] { std::free(block); }).join();
  std::free(again);
  void* of_thread = nullptr;
  std::thread([&] { of_thread = allocate(200); }).join();
  void* once_more = keep(of_thread);
  std::free(of_thread);
  std::thread([=] { std::free(once_more); }).join();
  expect_refused(2);
}
TEST(BadPointer, SecondFreeFromAnotherThread) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesTwiceFromTwoThreads", "is already free");
}

BP_PROBE(FreesALargeBlockTwice) {
  void* block = allocate(6 * kMiB);
  void* again = keep(block);
  std::free(block);
  std::free(again);
  expect_refused(1);
}
TEST(BadPointer, SecondFreeOfALargeBlock) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesALargeBlockTwice", "freeing 0x");
}

BP_PROBE(FreesTheMiddle) {
  char* block = bytes_of(allocate(64));
  std::memset(block, 7, 64);
  std::free(keep(block + 16));
  std::free(keep(block + 1));
  BP_PROBE_CHECK(block[16] == 7 && block[63] == 7);
  std::free(block);
  expect_refused(2);
}
TEST(BadPointer, TheMiddleOfABlock) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesTheMiddle", ": it points 16 bytes into a block of 64 bytes of boot; ");
}

BP_PROBE(FreesTheMiddleOfALargeBlock) {
  char* block = bytes_of(allocate(6 * kMiB));
  std::free(keep(block + 5 * kMiB));
  std::free(block);
  expect_refused(1);
}
TEST(BadPointer, TheMiddleOfALargeBlock) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesTheMiddleOfALargeBlock", ": it points 5242880 bytes into a block of 62");
}

BP_PROBE(FreesTheMiddleOfAnAlignedBlock) {
  char* block = bytes_of(std::aligned_alloc(256, 1024));
  std::free(keep(block + 256));
  std::free(block);
  expect_refused(1);
}
TEST(BadPointer, TheMiddleOfAnAlignedBlock) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesTheMiddleOfAnAlignedBlock", ": it points 256 bytes into a block of ");
}

BP_PROBE(FreesWhatIsNotTheHeaps) {
  auto created = process_pool().create_segment("volume:ram0", 4 * kMiB, PageSize::k4KiB, 1);
  BP_PROBE_CHECK(created.ok());
  std::free(keep(created.value()->address + 4096));
  std::free(keep(created.value()->address + 64 * kMiB));                  // a gap
  std::free(keep(process_pool().segment(0).address));                     // mimalloc's own record
  std::free(keep(process_pool().segment(0).address + 16 * kMiB - 4096));  // the metadata zone
  expect_refused(4);
}
TEST(BadPointer, OfAnotherOwner) {
  SKIP_WITHOUT_LEDGER();
  check_reported("FreesWhatIsNotTheHeaps",
                 ": it does not belong to the heap: it lies in volume:ram0; ");
}

BP_PROBE(ReallocatesWhatIsFree) {
  void* block = allocate(64);
  void* again = keep(block);
  std::free(block);
  errno = 0;
  BP_PROBE_CHECK(keep(std::realloc(again, 1000)) == nullptr && errno == EINVAL);
  expect_refused(1);
}
TEST(BadPointer, ReallocOfWhatIsFree) {
  SKIP_WITHOUT_LEDGER();
  check_reported("ReallocatesWhatIsFree", "is already free");
}

BP_PROBE(DeletesTwice) {
  void* block = keep(::operator new(40));
  void* again = keep(block);
  ::operator delete(block);
  ::operator delete(again);
  expect_refused(1);
}
TEST(BadPointer, SecondDelete) {
  SKIP_WITHOUT_LEDGER();
  check_reported("DeletesTwice", "is already free");
}

BP_PROBE(ManyBadFrees) {
  char* block = bytes_of(allocate(64));
  for (int i = 0; i < 10'000; ++i) std::free(keep(block + 8));
  expect_refused(10'000);
}
TEST(BadPointer, IsToldOnceASecondAndCountedAlways) {
  SKIP_WITHOUT_LEDGER();
  if (BP_DEBUG) BP_SKIP("debug builds stop at the first one");
  const uint64_t begin_ns = monotonic_ns();
  const test::Ended ended = test::run_fresh("ManyBadFrees");
  test::check_probe(ended, "ManyBadFrees", __FILE__, __LINE__);
  const std::string text(ended.text);
  uint64_t told = 0;
  for (size_t at = text.find("freeing"); at != text.npos; at = text.find("freeing", at + 1)) ++told;
  CHECK(told > 0);
  CHECK_TEXT(told <= 1 + (monotonic_ns() - begin_ns) / kNsPerSecond, ended.text);
}

// Several threads free the same block at the same time: one free succeeds, the others are refused.
BP_PROBE(ThreadsFreeTheSame) {
  constexpr int kRounds = 2000, kThreads = 4;
  static std::atomic<void*> block{nullptr};
  static std::atomic<int> round{0}, arrived{0};
  const auto work = [] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load() < i) std::this_thread::yield();
      std::free(block.load());
      arrived.fetch_add(1);
    }
  };
  std::thread threads[kThreads];
  for (std::thread& thread : threads) thread = std::thread(work);
  for (int i = 1; i <= kRounds; ++i) {
    block = allocate(48);
    round = i;
    while (arrived.load() < i * kThreads) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  expect_refused(uint64_t{kRounds} * (kThreads - 1));
}
TEST(BadPointer, OfSeveralThreadsOneIsRight) {
  SKIP_WITHOUT_LEDGER();
  if (BP_DEBUG) BP_SKIP("debug builds stop at the first one");
  BP_CHECK_PROBE(ThreadsFreeTheSame, "BEDPLATE_BOOT_BYTES=64 MiB");
}

// A write after free overwrites mimalloc's link between free blocks.
BP_PROBE(WritesAfterFree) {
  test::StderrCapture capture;
  void* blocks[64];
  void* again[64];
  for (int i = 0; i < 64; ++i) again[i] = keep(blocks[i] = allocate(64));
  for (void* block : blocks) std::free(block);
  for (void* block : again) std::memset(block, 0x5a, 64);
  {
    test::BlockList all;  // mimalloc takes free blocks in random order: this takes all of them
    for (int i = 0; i < 20'000; ++i) BP_PROBE_CHECK(all.add(64));
  }
  expect_sound_heap();
  const std::string text = capture.finish();
  BP_PROBE_CHECK(bad_pointer_count() > 0);
  BP_PROBE_CHECK(text.find("a block was written beyond its end, or after it was freed") !=
                 std::string::npos);
}
TEST(BadPointer, AWriteAfterFreeIsNoticedAndTheHeapStaysSound) {
  SKIP_WITHOUT_LEDGER();
  if (BP_DEBUG) BP_SKIP("debug builds stop at the first one");
  BP_CHECK_PROBE(WritesAfterFree);
}

BP_PROBE(DeletesWithTheWrongSize) { ::operator delete (keep(::operator new(40)), size_t{48}); }
BP_PROBE(DeletesAlignedWithTheWrongSize) {
  ::operator delete (keep(::operator new (128, std::align_val_t{64})), size_t{4096},
                     std::align_val_t{64});
}
TEST(BadPointer, DeleteWithTheWrongSize) {
  BP_SKIP_UNDER_SANITIZER();
  if (!BP_DEBUG) BP_SKIP("sizes of deletes are checked in debug builds");
  check_reported("DeletesWithTheWrongSize",
                 "as an object of 48 bytes: its block, of boot, has 40 bytes; ");
  check_reported("DeletesAlignedWithTheWrongSize", "as an object of 4096 bytes: its block");
}

// ---- Legal calls stay legal ----

BP_PROBE(LegalFrees) {
  std::free(nullptr);
  BP_PROBE_CHECK(malloc_usable_size(nullptr) == 0);
  // A block from segment 0, freed after boot.
  void* early = allocate(100);
  test::boot_heap(32 * kMiB);
  std::free(early);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, size_t{100}, size_t{5 * kMiB}}) {
    std::free(allocate(bytes));
    ::operator delete(keep(::operator new(bytes)), bytes);
    for (const size_t alignment : {size_t{16}, size_t{64}, size_t{4096}}) {
      std::free(keep(std::aligned_alloc(alignment, bytes)));
      ::operator delete (keep(::operator new (bytes, std::align_val_t{alignment})), bytes,
                         std::align_val_t{alignment});
    }
    void* block = allocate(bytes);
    for (const size_t more : {size_t{10}, size_t{1000}, size_t{2 * kMiB}, size_t{3}}) {
      block = keep(std::realloc(block, more));
      BP_PROBE_CHECK(block != nullptr && malloc_usable_size(block) >= more);
    }
    volatile size_t too_many = kTiB;
    BP_PROBE_CHECK(std::realloc(keep(block), too_many) == nullptr);  // `block` stays valid
    std::free(block);
  }
  // In a forked child, frees of the parent's blocks do nothing.
  void* of_parent = allocate(64);
  void* again = keep(of_parent);
  const pid_t child = fork();
  if (child == 0) {
    std::free(of_parent);
    std::free(again);
    void* own = allocate(64);
    std::free(own);
    _exit(bad_pointer_count() == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  BP_PROBE_CHECK(status == 0);
  std::free(of_parent);
  expect_refused(0);
}
TEST(BadPointer, WhatIsLegalIsNotReported) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LegalFrees);
}
