#include "pinned_pool/pinned_pool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/no_way_back.h"
#include "platform/log.h"
#include "platform/sanitized_build.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/hugepages.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/progress_news.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::TestPool;

namespace {

// The bytes that the kernel has allocated for this file.
uint64_t bytes_taken(int memfd) {
  struct stat status {};
  return fstat(memfd, &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

bool is_all_zero(const std::byte* bytes, uint64_t count) {
  return std::all_of(bytes, bytes + count, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

TEST_GROUP(PinnedPool) {
  TestPool pool;

  Segment& create(const OwnerName& owner, uint64_t bytes, unsigned thread_count = 1) {
    return *pool->create_segment(owner, bytes, PageSize::k4KiB, thread_count).take();
  }
  PoolPlan plan_of_48_mib(PageSize page) {
    PoolBudget budget;
    budget.bytes = 48 * kMiB;
    const Placement placement = {page == PageSize::k4KiB ? PageWish::k4KiB : PageWish::k2MiB};
    budget.heap = placement;
    budget.boot_bytes = 8 * kMiB;
    budget.heap_min_bytes = 4 * kMiB;
    return make_pool_plan(
               budget, {{"volume:ram0", {{"volume:ram0", 12 * kMiB}}, placement},
                        {"blockd", {{"requests", 64 * 100}, {"buffers", kMiB}}, placement, false}})
        .take();
  }
  // Creates the plan's segments and compares each with what the kernel holds.
  void check_that_plan_is_taken(const PoolPlan& plan) {
    create("boot", plan.segments[0].bytes);
    const Result<void> reserved = pool->reserve(plan, 2);
    CHECK_TEXT(reserved.ok(), reserved.ok() ? "" : reserved.error().answer);
    LONGS_EQUAL(plan.segments.size(), pool->segment_count());
    uint64_t taken_bytes = 0;
    for (uint32_t i = 0; i < pool->segment_count(); ++i) {
      const Segment& segment = pool->segment(i);
      STRCMP_EQUAL(plan.segments[i].owner.text, segment.owner.text);
      CHECK(segment.page == plan.segments[i].page);
      CHECK(segment.is_for_devices == (segment.owner != OwnerName("blockd")));
      CHECK(bytes_taken(segment.memfd) == plan.segments[i].bytes);
      taken_bytes += bytes_taken(segment.memfd);
    }
    CHECK(taken_bytes == plan.total_bytes());
    CHECK(taken_bytes == pool->total_bytes());
  }
};

TEST(PinnedPool, TakingMemorySaysHowFarItIs) {
  const PoolPlan plan = plan_of_48_mib(PageSize::k4KiB);
  create("boot", plan.segments[0].bytes);
  const test::ProgressNews news;
  CHECK(pool->reserve(plan, 2).ok());
  LONGS_EQUAL(plan.segments.size() - 1, news.texts.size());  // one report for each segment
  LONGS_EQUAL(1, news.count_of("taking memory: 40 MiB of 40 MiB (100 %)"));
  for (const uint64_t patience_ns : news.patiences_ns) CHECK(patience_ns == Progress::kPieceNsMax);
}

TEST(PinnedPool, SegmentsBeginAtRegionsOneAfterTheOther) {
  const Segment& first = create("first", 4 * kMiB);
  const Segment& second = create("second", 8 * kMiB);
  CHECK(reinterpret_cast<uintptr_t>(first.address) == test::kTestPoolBase);
  CHECK(second.address == first.address + kRegionBytes);
  LONGS_EQUAL(2, pool->segment_count());
  CHECK(pool->total_bytes() == 12 * kMiB);
  STRCMP_EQUAL("second", pool->segment(1).owner.text);
}

TEST(PinnedPool, SegmentIsTakenZeroedWritableAndLocked) {
  Segment& segment = create("first", 4 * kMiB);
  CHECK(bytes_taken(segment.memfd) == 4 * kMiB);
  CHECK(is_all_zero(segment.address, segment.bytes));
  LONGS_EQUAL(0, segment.lock_errno);
  std::memset(segment.address, 0x5a, segment.bytes);
  CHECK(segment.memory().size() == 4 * kMiB);
  std::byte last{};
  LONGS_EQUAL(1, pread(segment.memfd, &last, 1, 4 * kMiB - 1));  // shared: the write is in the file
  CHECK(last == std::byte{0x5a});
}

TEST(PinnedPool, PrivateSegmentIsTakenZeroedWritableAndCopiedByAFork) {
  Segment& segment = *pool->create_private_segment("first", 4 * kMiB, 1).take();
  CHECK(segment.is_private() && !create("second", 4 * kMiB).is_private());
  CHECK(is_all_zero(segment.address, segment.bytes));
  LONGS_EQUAL(0, segment.lock_errno);
  unsigned char is_there[4 * kMiB / 4096] = {};
  LONGS_EQUAL(0, mincore(segment.address, segment.bytes, is_there));
  CHECK(std::all_of(std::begin(is_there), std::end(is_there), [](unsigned char c) { return c; }));
  segment.address[0] = std::byte{1};
  const test::Ended ended = test::run_forked([&] {
    const bool was_there = segment.address[0] == std::byte{1};
    segment.address[0] = std::byte{2};
    _exit(was_there ? 0 : 1);
  });
  LONGS_EQUAL(0, ended.exit_code);
  CHECK(segment.address[0] == std::byte{1});
}

TEST(PinnedPool, PrivateSegmentGrowsInPlace) {
  Segment& segment = *pool->create_private_segment("first", 4 * kMiB, 1).take();
  std::memset(segment.address, 0x5a, segment.bytes);
  CHECK(pool->grow_first_segment(8 * kMiB));
  CHECK(segment.bytes == 12 * kMiB && segment.address[4 * kMiB - 1] == std::byte{0x5a});
  CHECK(is_all_zero(segment.address + 4 * kMiB, 8 * kMiB));
}

TEST(PinnedPool, PoolWithPrivateMemoryIsNotSealed) {
  const test::Ended ended = test::run_forked([&] {
    pool->create_private_segment("first", 4 * kMiB, 1).take();
    pool->seal();
  });
  LONGS_EQUAL(SIGABRT, ended.signal);
}

TEST(PinnedPool, SeveralThreadsTakeEveryPage) {
  // More than the chunk that a thread takes at a time, and not a multiple of that chunk.
  Segment& segment = create("large", 144 * kMiB, 3);
  CHECK(bytes_taken(segment.memfd) == 144 * kMiB);
}

TEST(PinnedPool, MissingRightToLockIsKeptForPreflight) {
  BP_SKIP_WITHOUT_MLOCK();
  if (getuid() != 0) BP_SKIP("only root can lower its rights for the test");
  const test::Ended ended = test::run_forked([&] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_MEMLOCK, &none);
    if (setuid(65534) != 0) _exit(1);
    // Every page is still taken, also beyond the chunk that a thread takes at a time.
    const auto created = pool->create_segment("first", 144 * kMiB, PageSize::k4KiB, 1);
    if (!created.ok()) _exit(2);
    const Segment& segment = pool->segment(0);
    if (segment.lock_errno != EPERM && segment.lock_errno != ENOMEM) _exit(3);
    _exit(bytes_taken(segment.memfd) == 144 * kMiB ? 0 : 4);
  });
  LONGS_EQUAL(0, ended.exit_code);
}

TEST(PinnedPool, PlanIsWhatIsTakenToTheByte) {
  check_that_plan_is_taken(plan_of_48_mib(PageSize::k4KiB));
}

TEST(PinnedPool, PlanIsWhatIsTakenToTheByteOnHugepages) {
  const test::LentHugepages lent(20);
  if (!lent.are_there()) BP_SKIP("2 MiB hugepages cannot be reserved on this machine");
  check_that_plan_is_taken(plan_of_48_mib(PageSize::k2MiB));
  CHECK(pool->find_segment("heap")->page == PageSize::k2MiB);
  CHECK(is_all_zero(pool->find_segment("heap")->address, 2 * kMiB));
}

TEST(PinnedPool, KnowsWhetherItIsAsPlanned) {
  const PoolPlan plan = plan_of_48_mib(PageSize::k4KiB);
  create("boot", plan.segments[0].bytes);
  CHECK_FALSE(pool->is_as_planned(plan));
  CHECK(pool->reserve(plan, 1).ok());
  CHECK(pool->is_as_planned(plan));
  const auto differs = [&](auto change) {
    PoolPlan other = plan;
    change(other.segments[3]);
    return !pool->is_as_planned(other);
  };
  CHECK(differs([](SegmentPlan& segment) { segment.owner = "other"; }));
  CHECK(differs([](SegmentPlan& segment) { segment.bytes += 4096; }));
  CHECK(differs([](SegmentPlan& segment) { segment.page = PageSize::k2MiB; }));
  CHECK(differs([](SegmentPlan& segment) { segment.is_for_devices = true; }));
  Segment& segment = *pool->find_segment("blockd");
  pool->carve(segment, "buffers", kMiB);
  CHECK(pool->is_as_planned(plan));
  pool->carve(segment, "requests", 64 * 100);
  CHECK(pool->is_as_planned(plan));
  CHECK(segment.carved_bytes < segment.bytes);
  pool->carve(segment, "more", 64);
  CHECK_FALSE(pool->is_as_planned(plan));
}

TEST(PinnedPool, CarvesFollowOneAnotherZeroedAndAligned) {
  Segment& segment = create("blockd", 4 * kMiB);
  const auto first = pool->carve(segment, "requests", 64);
  const auto second = pool->carve(segment, "buffers", 4096);
  CHECK(first.data() == segment.address);
  LONGS_EQUAL(64, first.size());
  CHECK(second.data() == segment.address + 64);
  LONGS_EQUAL(4096, second.size());
  CHECK(is_all_zero(second.data(), second.size()));
  const auto rest = pool->carve(segment, "rest", 4 * kMiB - 64 - 4096);
  CHECK(rest.data() + rest.size() == segment.address + segment.bytes);
}

TEST(PinnedPool, ContainsWhatLiesWhollyInOneSegment) {
  const Segment& first = create("first", 4 * kMiB);
  const Segment& second = create("second", 4 * kMiB);
  CHECK(pool->contains(first.address, 1));
  CHECK(pool->contains(first.address, first.bytes));
  CHECK(pool->contains(second.address + second.bytes - 1, 1));
  CHECK(pool->contains(second.address, 0));
  CHECK_FALSE(pool->contains(first.address - 1, 1));
  CHECK_FALSE(pool->contains(first.address, first.bytes + 1));
  CHECK_FALSE(pool->contains(first.address + 1, first.bytes));
  CHECK_FALSE(pool->contains(first.address + first.bytes, 1));  // the gap behind the first
  CHECK_FALSE(pool->contains(first.address, kRegionBytes + 1));
  CHECK_FALSE(pool->contains(first.address + 1, UINT64_MAX));
  CHECK_FALSE(pool->contains(nullptr, 1));
  CHECK_FALSE(pool->contains(&first, 1));
}

TEST(PinnedPool, FindsSegmentsByOwner) {
  create("first", 4 * kMiB);
  Segment& second = create("second", 4 * kMiB);
  CHECK(pool->find_segment("second") == &second);
  CHECK(pool->find_segment("third") == nullptr);
}

TEST(PinnedPool, MapIsItsLayoutAsPlainData) {
  create("first", 4 * kMiB);
  create("second", 8 * kMiB);
  static PoolMap map;
  pool->write_map(&map);
  LONGS_EQUAL(2, map.segment_count);
  LONGS_EQUAL(0, map.is_sealed);
  STRCMP_EQUAL("second", map.segments[1].owner.text);
  CHECK(map.segments[1].address == test::kTestPoolBase + kRegionBytes);
  CHECK(map.segments[1].bytes == 8 * kMiB);
  CHECK(map.segments[1].page_bytes == 4096);
  struct stat file = {};
  LONGS_EQUAL(0, fstat(pool->segment(1).memfd, &file));
  CHECK(map.segments[1].device == file.st_dev);
  CHECK(map.segments[1].inode == file.st_ino);
  const bool could_be_locked = pool->segment(1).lock_errno == 0;
  CHECK((map.segments[1].is_locked != 0) == could_be_locked);
}

TEST(PinnedPool, AddressInUseIsRefusedAndNothingIsTaken) {
  void* wanted = reinterpret_cast<void*>(test::kTestPoolBase);
  void* other =
      mmap(wanted, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(other == wanted);
  auto created = pool->create_segment("first", 4 * kMiB, PageSize::k4KiB, 1);
  CHECK_FALSE(created.ok());
  STRCMP_EQUAL("taking 4 MiB for first in pages of 4 KiB", created.error().doing);
  STRCMP_CONTAINS("is already in use in this process: ", created.error().answer);
  STRCMP_CONTAINS(" r--p 00000000 ", created.error().answer);  // the mapping's line in maps
  STRCMP_CONTAINS("run without what mapped it", created.error().cure);
  LONGS_EQUAL(0, pool->segment_count());
  LONGS_EQUAL(0, munmap(other, 4096));
  create("first", 4 * kMiB);  // the refusal left no mapping
}

TEST(PinnedPool, LimitsAreNamedWithTheirCure) {
  BP_SKIP_UNDER_SANITIZER();  // a sanitizer needs address space itself
  const struct {
    __rlimit_resource resource;
    rlim_t limit;
    const char* words;
  } kLimits[] = {
      {RLIMIT_AS, 64 * kKiB,
       ": Cannot allocate memory; raise the limit on address space: "
       "ulimit -v unlimited"},
      {RLIMIT_FSIZE, 64 * kKiB,
       ": a file may have at most 64 KiB, and a segment is a file; raise the limit "
       "on files: ulimit -f unlimited"},
      {RLIMIT_NOFILE, 0,
       ": Too many open files; raise the limit of open files, which is 0: ulimit -n 1024"},
  };
  for (const auto& each : kLimits) {
    const test::Ended ended = test::run_forked([&] {
      const rlimit limit = {each.limit, each.limit};
      setrlimit(each.resource, &limit);
      const auto created = pool->create_segment("first", 4 * kMiB, PageSize::k4KiB, 1);
      if (!created.ok()) log_error(created.error());
    });
    LONGS_EQUAL(0, ended.exit_code);
    CHECK_TEXT(ended.said(std::string("taking 4 MiB for first in pages of 4 KiB") + each.words),
               ended.text);
  }
}

// A program that becomes a daemon with closefrom(3) closes the segments' descriptors. The files
// that it opens next get their numbers.
TEST(PinnedPool, AClosedDescriptorIsToldAndItsNextOwnerLeftAlone) {
  for (const bool is_reused : {false, true}) {
    const test::Ended ended = test::run_forked([&] {
      TestPool own;  // on the child's stack, since the parent shares the heap
      auto created = own->create_segment("first", 4 * kMiB, PageSize::k4KiB, 1);
      if (!created.ok()) _exit(2);
      const int number = created.value()->memfd;
      close(number);
      const int other = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      if (!is_reused) close(other);
      if (is_reused && other != number) _exit(3);
      own->seal();
      if (is_reused && fcntl(other, F_GET_SEALS) != 0) _exit(4);
      if ((own->stoppers() & kWriteSealStops) != 0) _exit(5);
    });
    LONGS_EQUAL(0, ended.exit_code);
    CHECK_TEXT(ended.said("sealing first against writers: its descriptor "), ended.text);
    CHECK_TEXT(ended.said("was closed by the program; close only"), ended.text);
  }
}

// Otherwise output would go into the segment, or into the next file that gets the number.
TEST(PinnedPool, NoSegmentTakesTheNumberOfAStandardStream) {
  for (const int closed : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const test::Ended ended = test::run_forked([&] {
      TestPool own;
      close(closed);
      auto created = own->create_segment("first", 4 * kMiB, PageSize::k4KiB, 1);
      if (!created.ok()) _exit(2);
      if (created.value()->memfd <= STDERR_FILENO) _exit(3);
      if (fcntl(closed, F_GETFD) != 0) _exit(4);
    });
    LONGS_EQUAL(0, ended.exit_code);
  }
}

TEST(PinnedPool, MissingHugepagesAreRefusedWithTheNumbersAndTheCommand) {
  const HugepageCounts counts = hugepage_counts(PageSize::k1GiB);
  if (!counts.supported) BP_SKIP("this kernel has no hugepages of 1 GiB");
  const uint64_t count = counts.available_count + 3;
  if (count * kGiB > 64 * kGiB) BP_SKIP("too many hugepages of 1 GiB are free");
  auto created = pool->create_segment("heap", count * kGiB, PageSize::k1GiB, 1);
  CHECK_FALSE(created.ok());
  const Error& error = created.error();
  STRCMP_EQUAL(("taking " + std::to_string(count) + " GiB for heap in pages of 1 GiB").c_str(),
               error.doing);
  STRCMP_EQUAL("Cannot allocate memory", error.answer);
  const std::string cure = std::to_string(counts.available_count) + " pages of 1 GiB are free, " +
                           std::to_string(count) + " are needed: echo " +
                           std::to_string(counts.total_count + 3) + " > " +
                           hugepage_count_file(PageSize::k1GiB).path;
  STRCMP_EQUAL(cure.c_str(), error.cure);
  LONGS_EQUAL(0, pool->segment_count());
}

TEST(PinnedPool, RefusalLeavesNoDescriptorBehind) {
  const int before = dup(STDERR_FILENO);
  close(before);
  void* wanted = reinterpret_cast<void*>(test::kTestPoolBase);
  void* other =
      mmap(wanted, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK_FALSE(pool->create_segment("first", 4 * kMiB, PageSize::k4KiB, 1).ok());
  munmap(other, 4096);
  const int after = dup(STDERR_FILENO);
  close(after);
  LONGS_EQUAL(before, after);
}

TEST(PinnedPool, ReserveStopsAtTheFirstSegmentThatIsRefused) {
  const PoolPlan plan = plan_of_48_mib(PageSize::k4KiB);
  create("boot", plan.segments[0].bytes);
  void* second = reinterpret_cast<void*>(test::kTestPoolBase + 2 * kRegionBytes);
  void* other =
      mmap(second, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  const Result<void> reserved = pool->reserve(plan, 1);
  munmap(other, 4096);
  CHECK_FALSE(reserved.ok());
  STRCMP_EQUAL("taking 12 MiB for volume:ram0 in pages of 4 KiB", reserved.error().doing);
}

// Segment 0 grows in place until there is another segment.
TEST(PinnedPool, TheFirstSegmentGrowsInPlaceUntilThereIsAnother) {
  Segment& first = create("first", 4 * kMiB);
  pool->carve(first, "first", first.bytes)[0] = std::byte{7};
  CHECK(pool->grow_first_segment(8 * kMiB));
  CHECK_EQUAL(12 * kMiB, first.bytes);
  CHECK_EQUAL(4 * kMiB, first.carved_bytes);
  CHECK(bytes_taken(first.memfd) == 12 * kMiB);
  CHECK(pool->contains(first.address, 12 * kMiB));
  CHECK(first.address[0] == std::byte{7} && first.address[12 * kMiB - 1] == std::byte{0});
  CHECK(pool->is_valid());
  const Segment& second = create("second", 4 * kMiB);
  POINTERS_EQUAL(first.address + kRegionBytes, second.address);
  LONGS_EQUAL(F_SEAL_SHRINK | F_SEAL_GROW,
              fcntl(first.memfd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW));
  LONGS_EQUAL(-1, ftruncate(first.memfd, 16 * kMiB));
  LONGS_EQUAL(-1, ftruncate(first.memfd, 4 * kMiB));
}

TEST(PinnedPool, TheFirstSegmentStaysAsItIsWhereItCannotGrow) {
  Segment& first = create("first", 4 * kMiB);
  void* obstacle = mmap(first.address + 8 * kMiB, 4096, PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(obstacle != MAP_FAILED);
  CHECK_FALSE(pool->grow_first_segment(8 * kMiB));
  LONGS_EQUAL(EEXIST, errno);
  CHECK_EQUAL(4 * kMiB, first.bytes);
  struct stat file = {};
  LONGS_EQUAL(0, fstat(first.memfd, &file));
  CHECK_EQUAL(4 * kMiB, static_cast<uint64_t>(file.st_size));
  CHECK(pool->grow_first_segment(4 * kMiB));  // fewer bytes fit
  munmap(obstacle, 4096);
  CHECK(pool->grow_first_segment(8 * kMiB));
  CHECK(pool->is_valid());
}

TEST(PinnedPool, MemfdsNeitherShrinkNorGrow) {
  create("first", 4 * kMiB);
  const Segment& segment = create("second", 4 * kMiB);
  CHECK((fcntl(segment.memfd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW)) ==
        (F_SEAL_SHRINK | F_SEAL_GROW));
  for (const off_t bytes : {off_t{0}, off_t{4096}, off_t{8 * kMiB}}) {
    LONGS_EQUAL(-1, ftruncate(segment.memfd, bytes));
    LONGS_EQUAL(EPERM, errno);
  }
  CHECK(bytes_taken(segment.memfd) == 4 * kMiB);
}

TEST(PinnedPool, MemfdsCloseOnExec) {
  const Segment& segment = create("first", 4 * kMiB);
  CHECK((fcntl(segment.memfd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST(PinnedPool, SizesThatAreNoPagesAreProgrammingErrors) {
  BP_CHECK_DIES("assertion failed: bytes > 0",
                (void)pool->create_segment("odd", 0, PageSize::k4KiB, 1));
  BP_CHECK_DIES("assertion failed: bytes > 0 && bytes % page_bytes(page) == 0",
                (void)pool->create_segment("odd", 4097, PageSize::k4KiB, 1));
  BP_CHECK_DIES("bytes % page_bytes(page) == 0",
                (void)pool->create_segment("odd", kMiB, PageSize::k2MiB, 1));
}

TEST(PinnedPool, CarveThatDoesNotFitIsAProgrammingError) {
  Segment& segment = create("blockd", 4 * kMiB);
  pool->carve(segment, "most", 4 * kMiB - 64);
  BP_CHECK_DIES("assertion failed: bytes <= segment.bytes - segment.carved_bytes",
                pool->carve(segment, "more", 128));
  BP_CHECK_DIES("assertion failed: bytes % kCacheLineBytes == 0", pool->carve(segment, "odd", 63));
  LONGS_EQUAL(64, pool->carve(segment, "rest", 64).size());
}

TEST(PinnedPool, PlanForAnotherSegmentZeroIsAProgrammingError) {
  const PoolPlan plan = plan_of_48_mib(PageSize::k4KiB);
  BP_CHECK_DIES("segment_count() == 1", (void)pool->reserve(plan, 1));
  create("boot", 4 * kMiB);
  BP_CHECK_DIES("assertion failed: plan.segments[0].bytes == segments_[0].bytes",
                (void)pool->reserve(plan, 1));
}

TEST(PinnedPool, IndexOfNoSegmentIsAProgrammingError) {
  create("first", 4 * kMiB);
  BP_CHECK_DIES("assertion failed: index < segment_count()", (void)pool->segment(1));
}

TEST(PinnedPool, KnowsWhetherItIsValid) {
  CHECK(pool->is_valid());
  create("first", 4 * kMiB);
  Segment& second = create("second", 4 * kMiB);
  pool->carve(second, "part", 128);
  CHECK(pool->is_valid());
  const auto is_invalid_with = [&](auto change) {
    const Segment before = second;
    change(second);
    const bool is_valid = pool->is_valid();
    second = before;
    return !is_valid && pool->is_valid();
  };
  CHECK(is_invalid_with([](Segment& its) { its.address -= kRegionBytes; }));  // overlaps the first
  CHECK(is_invalid_with([](Segment& its) { its.address += kRegionBytes; }));
  CHECK(is_invalid_with([](Segment& its) { its.address += 4096; }));
  CHECK(is_invalid_with([](Segment& its) { its.bytes += 1; }));
  CHECK(is_invalid_with([](Segment& its) { its.bytes += kRegionBytes; }));
  CHECK(is_invalid_with([](Segment& its) { its.carved_bytes = its.bytes + 64; }));
  CHECK(is_invalid_with([](Segment& its) { its.carved_bytes = 100; }));
  CHECK(is_invalid_with([](Segment& its) { its.is_own = false; }));  // not all is carved
  CHECK(is_invalid_with([](Segment& its) { its.number = 0; }));
  CHECK(is_invalid_with([](Segment& its) { its.is_writable = false; }));
  CHECK(is_invalid_with([](Segment& its) { its.memfd = 1; }));
  CHECK(is_invalid_with([](Segment& its) { its.has_write_seal = true; }));  // before the seal
#if BP_DEBUG
  second.number = 0;
  BP_CHECK_DIES("is_valid() before a change", pool->carve(second, "more", 64));
  second.number = 1;
#endif
}

// Two threads that carve at the same time could get the same part.
TEST(PinnedPool, TwoThreadsThatChangeItAtOnceAreAProgrammingError) {
#ifdef BP_THREAD_SANITIZER
  BP_SKIP("this build reports such a race itself, mostly before the assertion does");
#endif
  // Either thread may be the first to find the other.
  BP_CHECK_DIES("thread_owner.h", {
    static PinnedPool own(test::kTestPoolBase);  // not on the heap, which the parent shares
    static std::atomic<bool> has_ended{false};
    Segment& first = *own.create_segment("first", 4 * kMiB, PageSize::k4KiB, 1).take();
    std::thread other([] {
      (void)own.create_segment("long", 128 * kMiB, PageSize::k4KiB, 1);
      has_ended.store(true);
    });
    while (!has_ended.load()) own.carve(first, "none", 0);
    other.join();
  });
}
