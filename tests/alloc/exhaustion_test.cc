// An exhausted heap: malloc returns NULL with ENOMEM and logs a message, and works again after
// frees.
#include "alloc/exhaustion.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <regex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <malloc.h>
#include <unistd.h>

#include "alloc/added_heap.h"
#include "alloc/confined_heap.h"
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
using bedplate::test::allocate;
using bedplate::test::BlockList;
using bedplate::test::keep;

namespace {

constexpr const char* kBootMessage =
    "bedplate: allocating 12224 KiB: boot is exhausted; the pool's biggest owners: boot 16 MiB; "
    "set BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link time\n";
constexpr const char* kProgramMessage =
    "bedplate: allocating 12224 KiB: boot is exhausted; the pool's biggest owners: boot 16 MiB; "
    "free memory, or give the heap more: BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link time, "
    "or bp_add_heap (C++: add_heap)\n";
constexpr const char* kHeapMessage =
    "bedplate: allocating 64 KiB: the heap is exhausted; the pool's biggest owners: "
    "volume:ram0 48 MiB, heap N, boot 16 MiB; free memory, or raise [pool] bytes\n";

// Bedplate's lines in `text`, without those that mimalloc writes in debug builds.
std::string own_lines(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n') + 1);
    if (line.starts_with("bedplate: ")) lines += line;
    text.remove_prefix(line.empty() ? text.size() : line.size());
  }
  return lines;
}

// Whether `lines` consist of `message`, at most once a second since `begin_ns`.
bool is_told_once_a_second(std::string_view lines, std::string_view message, uint64_t begin_ns) {
  uint64_t count = 0;
  for (; lines.starts_with(message); ++count) lines.remove_prefix(message.size());
  return lines.empty() && count > 0 && count <= 1 + (monotonic_ns() - begin_ns) / kNsPerSecond;
}

void boot_heap_and_volume() {
  test::boot_heap(32 * kMiB);
  BP_PROBE_CHECK(process_pool().create_segment("volume:ram0", 48 * kMiB, PageSize::k4KiB, 1).ok());
}

// Requests the whole heap, which holds some blocks already, so that each request is refused.
void refuse(int count) {
  volatile size_t too_many = heap_block_bytes_max();
  for (int i = 0; i < count; ++i) BP_PROBE_CHECK(allocate(too_many) == nullptr);
}

}  // namespace

BP_PROBE(ExhaustAndGoOn) {
  boot_heap_and_volume();
  for (const size_t bytes :
       {size_t{16}, size_t{1000}, size_t{64 * kKiB}, size_t{kMiB}, size_t{9 * kMiB}}) {
    BlockList blocks;
    const size_t count = blocks.add_all(bytes);
    BP_PROBE_CHECK(count > 0 && errno == ENOMEM);
    errno = 0;
    BP_PROBE_CHECK(allocate(bytes) == nullptr);  // a second time
    BP_PROBE_CHECK(errno == ENOMEM);
    blocks.free_all();
    // All memory can be taken again, whatever block size it had before. (There may be one page
    // more, and each page has a header.)
    BP_PROBE_CHECK(blocks.add_all(bytes) >= count - count / 1000);
  }
  BlockList whole;
  BP_PROBE_CHECK(whole.add(24 * kMiB));
}

BP_PROBE(ExhaustByEveryAllocator) {
  boot_heap_and_volume();
  void* block = allocate(100);
  std::memset(block, 0x44, 100);
  const size_t bytes = 200 * kKiB;
  BlockList blocks;
  blocks.add_all(kMiB);
  blocks.add_all(bytes);
  void* untouched = &blocks;
  errno = 0;
  BP_PROBE_CHECK(keep(std::calloc(1, bytes)) == nullptr && errno == ENOMEM);
  errno = 0;
  BP_PROBE_CHECK(keep(std::realloc(keep(block), bytes)) == nullptr && errno == ENOMEM);
  BP_PROBE_CHECK(static_cast<char*>(block)[99] == 0x44);
  errno = 0;
  BP_PROBE_CHECK(keep(memalign(4096, bytes)) == nullptr && errno == ENOMEM);
  errno = 0;
  BP_PROBE_CHECK(keep(std::aligned_alloc(64, bytes)) == nullptr && errno == ENOMEM);
  errno = 0;
  BP_PROBE_CHECK(posix_memalign(&untouched, 64, bytes) == ENOMEM && errno == ENOMEM);
  BP_PROBE_CHECK(untouched == &blocks);
  errno = 0;
  BP_PROBE_CHECK(keep(valloc(bytes)) == nullptr && errno == ENOMEM);
}

BP_PROBE(ExhaustFromSeveralThreads) {
  boot_heap_and_volume();
  expect_appliance();
  // All threads start before the rounds: later, the memory that a start allocates would be refused,
  // or split the space for the 20 MiB.
  std::latch all_started(3);
  const auto take_all = [&all_started] {
    all_started.arrive_and_wait();
    for (int round = 0; round < 3; ++round) {
      BlockList blocks;
      blocks.add_all(100'000);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(take_all);
  for (std::thread& thread : threads) thread.join();
  BP_PROBE_CHECK(exhaustion_count() >= 9);
  BlockList blocks;
  BP_PROBE_CHECK(blocks.add(20 * kMiB));
}

BP_PROBE(RefusalsBeforeBoot) {
  expect_appliance();
  BP_PROBE_CHECK(exhaustion_count() == 0);
  refuse(1000);
  BP_PROBE_CHECK(exhaustion_count() == 1000);
}

BP_PROBE(RefusalsAfterBoot) {
  boot_heap_and_volume();
  expect_appliance();
  BlockList blocks;
  blocks.add_all(64 * kKiB);
  BP_PROBE_CHECK(exhaustion_count() == 1);
}

BP_PROBE(RefusalsOfAnAddedHeap) {
  BP_PROBE_CHECK(add_heap(32 * kMiB, PageSize::k4KiB).ok());
  BlockList blocks;
  blocks.add_all(64 * kKiB);
}

// The message to a program without an appliance names the settings that the program has.
BP_PROBE(RefusalsWithoutAnAppliance) {
  test::StderrCapture capture;
  const uint64_t begin_ns = monotonic_ns();
  refuse(1000);
  BP_PROBE_CHECK(is_told_once_a_second(own_lines(capture.text()), kProgramMessage, begin_ns));
  capture.finish();
  BP_PROBE_CHECK(exhaustion_count() == 1000);
}

// A request that no heap of this size could serve is refused. The message says so, and names the
// size. thread_heaps_test.cc tests that other threads' heaps are not searched.
void refuse_absurd(void* (*take)()) {
  errno = 0;
  BP_PROBE_CHECK(keep(take()) == nullptr && errno == ENOMEM);
}

BP_PROBE(MoreThanThereIs) {
  refuse_absurd([] {
    volatile size_t bytes = 64 * kMiB;
    return std::malloc(bytes);
  });
}

BP_PROBE(MoreThanCanBeSaid) {
  refuse_absurd([] {
    volatile size_t bytes = SIZE_MAX;
    return std::malloc(bytes);
  });
}

BP_PROBE(NoBlockAtSuchAMultiple) {
  refuse_absurd([] {
    volatile size_t bytes = 4096;
    return memalign(512 * kMiB, bytes);
  });
}

BP_PROBE(AlignmentThatIsNotServed) {
  refuse_absurd([] {
    volatile size_t bytes = 4096;
    return memalign(4 * kGiB, bytes);
  });
}

// Exhausts the heap to the last byte: the message allocates nothing.
BP_PROBE(ExhaustWithoutAnAppliance) {
  BlockList blocks;
  for (const size_t bytes : {kMiB, 64 * kKiB, kKiB, uint64_t{8}}) blocks.add_all(bytes);
  BP_PROBE_CHECK(exhaustion_count() == 4);
}

BP_PROBE(RefusalsInAJoinedProcess) {
  process_pool().seal();
  refuse(1);
}

BP_PROBE(RefusalsForOverASecond) {
  test::StderrCapture capture;
  std::string lines;
  const uint64_t start = monotonic_ns();
  while (std::count(lines.begin(), lines.end(), '\n') < 2) {
    BP_PROBE_CHECK(monotonic_ns() - start < test::kPatienceNs);
    refuse(100);
    lines = own_lines(capture.text());
  }
  BP_PROBE_CHECK(monotonic_ns() - start >= kNsPerSecond);
  capture.finish();
}

TEST_GROUP(Exhaustion){};

TEST(Exhaustion, IsNullAndEnomemAndEverythingCanBeHadAgain) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ExhaustAndGoOn);
}

TEST(Exhaustion, IsTheSameForEveryAllocator) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ExhaustByEveryAllocator);
}

TEST(Exhaustion, OfSeveralThreadsAtOnceLeavesNothingBehind) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ExhaustFromSeveralThreads);
}

TEST(Exhaustion, BeforeBootNamesSegmentZeroAndItsSetting) {
  BP_SKIP_UNDER_SANITIZER();
  const uint64_t begin_ns = monotonic_ns();
  const test::Ended ended = test::run_fresh("RefusalsBeforeBoot");
  LONGS_EQUAL(0, ended.exit_code);
  // A thousand refusals log one line, and one more for each second that they take.
  CHECK_TEXT(is_told_once_a_second(own_lines(ended.text), kBootMessage, begin_ns), ended.text);
}

TEST(Exhaustion, AfterBootNamesTheBiggestOwnersInOrder) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended = test::run_fresh("RefusalsAfterBoot");
  LONGS_EQUAL(0, ended.exit_code);
  // How much of its 32 MiB the heap could hand out differs between builds.
  const std::regex figure("heap (29|3[01])([0-9]{3})? [MK]iB");
  const std::string said = std::regex_replace(own_lines(ended.text), figure, "heap N");
  STRCMP_EQUAL(kHeapMessage, said.c_str());
}

TEST(Exhaustion, WithoutAnApplianceNamesWhatGivesTheHeapMore) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(RefusalsWithoutAnAppliance);
  const test::Ended ended = test::run_fresh("ExhaustWithoutAnAppliance");
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_CONTAINS("bedplate: allocating 1 MiB: boot is exhausted; ", own_lines(ended.text).c_str());
}

TEST(Exhaustion, NamesAddedMemory) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended = test::run_fresh("RefusalsOfAnAddedHeap");
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_CONTAINS("the pool's biggest owners: heap:added 32 MiB, boot 16 MiB; ",
                  own_lines(ended.text).c_str());
}

TEST(Exhaustion, IsNotWhatARequestThatNoHeapCouldServeIsCalled) {
  BP_SKIP_UNDER_SANITIZER();
  const auto check_told = [](const char* probe, const std::string& problem, const char* cure) {
    const test::Ended ended = test::run_fresh(probe);
    LONGS_EQUAL_TEXT(0, ended.exit_code, ended.text);
    STRCMP_EQUAL(("bedplate: allocating " + problem + "; " + cure + "\n").c_str(),
                 own_lines(ended.text).c_str());
  };
  constexpr const char* kMore =
      "ask for less, or give the heap more: BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link "
      "time, or bp_add_heap (C++: add_heap)";
  const std::string largest = "even when empty, the heap has no block larger than 12224 KiB";
  check_told("MoreThanThereIs", "64 MiB: " + largest, kMore);
  check_told("MoreThanCanBeSaid", "18446744073709551615 bytes: " + largest, kMore);
  check_told("NoBlockAtSuchAMultiple",
             "4 KiB at a multiple of 512 MiB: even when empty, the heap has no room for such a "
             "block; its largest block is 12224 KiB",
             kMore);
  check_told("AlignmentThatIsNotServed",
             "4 KiB at a multiple of 4 GiB: the heap supports alignments of at most 1 GiB",
             "ask for a smaller one");
}

TEST(Exhaustion, OfAJoinedProcessNamesItsKey) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended = test::run_fresh("RefusalsInAJoinedProcess");
  STRCMP_CONTAINS("free memory, or raise heap_bytes in its [[process]]\n", ended.text);
}

TEST(Exhaustion, IsToldOnceASecond) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(RefusalsForOverASecond);
}

#if BP_SANITIZED
TEST(Exhaustion, IsNotCountedInSanitizerBuilds) { LONGS_EQUAL(0, exhaustion_count()); }
#endif
