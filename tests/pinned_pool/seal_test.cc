// The end of booting: the calls that a sealed pool refuses, and those that still work.
#include "pinned_pool/pinned_pool.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/no_way_back.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::TestPool;

namespace {

// The answer of a system call: 0 or errno. Not through the C library's wrappers, which sanitizers
// replace.
template <typename... Words>
int answer_of(long number, Words... words) {
  errno = 0;
  return syscall(number, words...) == -1 ? errno : 0;
}

// Writes the name of each call that was not refused with EPERM. For a forked child.
void expect_refused(const char* call, int answer) {
  if (answer == EPERM) return;
  char text[80];
  const int length = std::snprintf(text, sizeof text, "%s answered %d\n", call, answer);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(length));
}

}  // namespace

TEST_GROUP(PoolSeal) {
  TestPool pool;

  Segment& create(const OwnerName& owner, uint64_t bytes) {
    return *pool->create_segment(owner, bytes, PageSize::k4KiB, 1).take();
  }
};

TEST(PoolSeal, SealEndsBooting) {
  create("first", 4 * kMiB);
  CHECK_FALSE(pool->is_sealed());
  LONGS_EQUAL(0, pool->stoppers());
  const test::Ended ended = test::run_forked([&] {
    pool->seal();
    static PoolMap map;
    pool->write_map(&map);
    _exit(pool->is_sealed() && (pool->stoppers() & kSizeSealStops) != 0 && map.is_sealed == 1 ? 0
                                                                                              : 1);
  });
  LONGS_EQUAL(0, ended.exit_code);
}

TEST(PoolSeal, TheMapSaysWhichSegmentsTakeFurtherWriters) {
  create("for others", 4 * kMiB).takes_write_seal = false;
  create("own", 4 * kMiB);
  const test::Ended ended = test::run_forked([&] {
    pool->seal();
    static PoolMap map;
    pool->write_map(&map);
    const bool has_seal = (fcntl(pool->segment(1).memfd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) != 0;
    _exit(map.segments[0].has_write_seal == 0 && map.segments[1].has_write_seal == has_seal ? 0
                                                                                            : 1);
  });
  LONGS_EQUAL(0, ended.exit_code);
}

// A joiner's seal against writers would lock out the next joiner.
TEST(PoolSeal, TheSealEndsTheSealsOfEveryFile) {
  create("for others", 4 * kMiB).takes_write_seal = false;
  create("own", 4 * kMiB);
  const test::Ended ended = test::run_forked([&] {
    pool->seal();
    for (uint32_t i = 0; i < pool->segment_count(); ++i) {
      const int memfd = pool->segment(i).memfd;
      const int before = fcntl(memfd, F_GET_SEALS);
      for (const int seal : {F_SEAL_SEAL, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
        if (fcntl(memfd, F_ADD_SEALS, seal) == 0 || errno != EPERM) _exit(1);
      }
      if (fcntl(memfd, F_GET_SEALS) != before) _exit(2);
    }
  });
  LONGS_EQUAL(0, ended.exit_code);
}

TEST(PoolSeal, CarveAfterTheSealIsAProgrammingError) {
  Segment& segment = create("first", 4 * kMiB);
  BP_CHECK_DIES("assertion failed: !is_sealed()", pool->seal(); pool->carve(segment, "late", 64));
}

TEST(PoolSeal, SegmentAfterTheSealIsAProgrammingError) {
  create("first", 4 * kMiB);
  BP_CHECK_DIES("assertion failed: !is_sealed()", pool->seal();
                (void)pool->create_segment("late", 4 * kMiB, PageSize::k4KiB, 1));
}

TEST(PoolSeal, SecondSealIsAProgrammingError) {
  create("first", 4 * kMiB);
  BP_CHECK_DIES("assertion failed: !is_sealed()", pool->seal(); pool->seal());
}

TEST(PoolSeal, SealedMemoryStaysUsable) {
  Segment& segment = create("first", 4 * kMiB);
  const test::Ended ended = test::run_forked([&] {
    pool->seal();
    std::memset(segment.address, 0x33, segment.bytes);
  });
  LONGS_EQUAL(0, ended.exit_code);
  CHECK(segment.address[segment.bytes - 1] == std::byte{0x33});
}

TEST(PoolSeal, KernelRefusesToChangeTheSealedLayout) {
  const Segment& first = create("first", 4 * kMiB);
  const Segment& second = create("second", 4 * kMiB);
  constexpr int kNotEnforced = 10;
  const test::Ended ended = test::run_forked([&] {
    pool->seal();
    if ((pool->stoppers() & kMappingSealStops) == 0) _exit(kNotEnforced);
    for (const Segment* segment : {&first, &second}) {
      std::byte* page = segment->address + kMiB;
      void* elsewhere = reinterpret_cast<void*>(test::kTestPoolBase + 8 * kRegionBytes);
      const int replace = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
      expect_refused("munmap", answer_of(SYS_munmap, page, 4096UL));
      expect_refused("munmap of all", answer_of(SYS_munmap, segment->address, segment->bytes));
      expect_refused("mprotect", answer_of(SYS_mprotect, page, 4096UL, PROT_READ));
      expect_refused("mremap", answer_of(SYS_mremap, page, 4096UL, 4096UL,
                                         MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere));
      expect_refused("shrinking mremap",
                     answer_of(SYS_mremap, segment->address, segment->bytes, 4096UL, 0));
      expect_refused("mmap over it", answer_of(SYS_mmap, page, 4096UL, PROT_READ, replace, -1, 0L));
    }
  });
  if (ended.exit_code == kNotEnforced) BP_SKIP("this kernel has no mseal (Linux 6.10)");
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_EQUAL("", ended.text);
}
