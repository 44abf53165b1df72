#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pinned_pool/audit.h"
#include "pinned_pool/no_way_back.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/hugepages.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::TestPool;

namespace {

constexpr uint64_t kBytes = 4 * kMiB;
constexpr uint64_t kAddress = test::kTestPoolBase + 3 * kRegionBytes;

Fd make_file(uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  Fd file(memfd_create("owner", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(ftruncate(file.number(), static_cast<off_t>(bytes)) == 0);
  CHECK(fcntl(file.number(), F_ADD_SEALS, seals) == 0);
  return file;
}

Fd open_read_only(const Fd& file) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file.number());
  return Fd(open(path, O_RDONLY | O_CLOEXEC));
}

}  // namespace

TEST_GROUP(AdoptSegment) {
  TestPool pool;
  OfferedSegment offered = {"heap:relay#0", 5, kAddress, kBytes, 4 * kKiB, true};
  Fd file = make_file(kBytes);

  void check_refused(const char* answer) {
    const uint32_t count = pool->segment_count();
    auto adopted = pool->adopt_segment(offered, std::move(file));
    CHECK(!adopted.ok());
    STRCMP_EQUAL(answer, adopted.error().answer);
    STRNCMP_EQUAL("mapping heap:relay#0 of the pool", adopted.error().doing, 32);
    CHECK(adopted.error().cure[0] != '\0');
    LONGS_EQUAL(count, pool->segment_count());
  }
};

TEST(AdoptSegment, LiesWhereItWasOffered) {
  const Fd same(dup(file.number()));
  Segment& segment = *pool->adopt_segment(offered, std::move(file)).take();
  CHECK(reinterpret_cast<uintptr_t>(segment.address) == kAddress);
  CHECK(segment.bytes == kBytes);
  LONGS_EQUAL(5, segment.number);
  CHECK(segment.is_for_devices);
  CHECK(segment.is_writable);
  POINTERS_EQUAL(&segment, pool->find_segment("heap:relay#0"));
  CHECK(pool->contains(segment.address + kBytes - 8, 8));
  std::memcpy(segment.address + kBytes - 5, "there", 5);
  char text[5];
  CHECK(pread(same.number(), text, 5, kBytes - 5) == 5);
  MEMCMP_EQUAL("there", text, 5);
}

TEST(AdoptSegment, ReadOnlyCannotBeWrittenNorMadeWritable) {
  offered.is_writable = false;
  Segment& segment = *pool->adopt_segment(offered, open_read_only(file)).take();
  CHECK(segment.address[0] == std::byte{0});
  const test::Ended ended = test::run_forked([&] {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer has a handler
    segment.address[0] = std::byte{1};
  });
  LONGS_EQUAL(SIGSEGV, ended.signal);
  CHECK(mprotect(segment.address, 4096, PROT_READ | PROT_WRITE) != 0);
  LONGS_EQUAL(EACCES, errno);
}

TEST(AdoptSegment, HugepagesReadOnlyAlsoOnceTheOwnerSealedThem) {
  const test::LentHugepages lent(2);
  if (!lent.are_there()) BP_SKIP("no hugepages, and no right to reserve any");
  TestPool owner(test::kTestPoolBaseInRange);
  CHECK(owner->create_segment("boot", kMiB, PageSize::k4KiB, 1).ok());  // segment 0 may grow
  Segment& made = *owner->create_segment("heap:relay#0", kBytes, PageSize::k2MiB, 1).take();
  LONGS_EQUAL(0, seal_against_writers(made.memfd));
  made.address[kBytes - 1] = std::byte{0x5a};
  offered.is_writable = false;
  offered.page_bytes = 2 * kMiB;
  Segment& segment = *pool->adopt_segment(offered, open_read_only(Fd(dup(made.memfd)))).take();
  CHECK(segment.address[kBytes - 1] == std::byte{0x5a});
  LONGS_EQUAL(0, segment.lock_errno);
}

TEST(AdoptSegment, OwnSegmentsComeBehindIt) {
  (void)pool->adopt_segment(offered, std::move(file)).take();
  Segment& own = *pool->create_segment("own", kBytes, PageSize::k4KiB, 1).take();
  CHECK(reinterpret_cast<uintptr_t>(own.address) == kAddress + kRegionBytes);
}

TEST(AdoptSegment, SealLeavesItsFileToItsOwner) {
  const Fd same(dup(file.number()));
  (void)pool->adopt_segment(offered, std::move(file)).take();
  const test::Ended ended = test::run_forked([&] {
    pool->seal();
    const int seals = fcntl(same.number(), F_GET_SEALS);
    _exit(seals == (F_SEAL_SHRINK | F_SEAL_GROW) && (pool->stoppers() & kWriteSealStops) == 0 ? 0
                                                                                              : 1);
  });
  LONGS_EQUAL(0, ended.exit_code);
}

TEST(AdoptSegment, AuditKnowsItsRights) {
  TestPool in_range(test::kTestPoolBaseInRange);
  offered.address = test::kTestPoolBaseInRange;
  offered.is_writable = false;
  (void)in_range->adopt_segment(offered, open_read_only(file)).take();
  PoolMap map;
  in_range->write_map(&map);
  AuditReport report = audit_maps(map, 0).take();
  STRCMP_EQUAL(nullptr, std::strstr(report.text, "heap:relay#0: 0x"));
  map.segments[0].is_writable = 1;
  report = audit_maps(map, 0).take();
  CHECK(std::strstr(report.text, "has the rights r--s, not rw-s") != nullptr);
}

TEST(AdoptSegment, RefusesAddressesThatAreNone) {
  for (const uint64_t address : {kAddress + 4096, test::kTestPoolBase - kRegionBytes, uint64_t{0},
                                 test::kTestPoolBase + kPoolSpanBytes, UINT64_MAX}) {
    offered.address = address;
    check_refused("it does not fit the regions of the pool's range");
  }
  offered.address = test::kTestPoolBase + kPoolSpanBytes - kRegionBytes;
  for (const uint64_t bytes : {kRegionBytes + 4096, UINT64_MAX - 4095}) {
    offered.bytes = bytes;
    check_refused("it does not fit the regions of the pool's range");
  }
}

TEST(AdoptSegment, RefusesWhatIsNoMultipleOfAPage) {
  offered.bytes = kBytes + 1;
  check_refused("its size is not a multiple of a page of 4096 bytes");
  offered.bytes = 0;
  check_refused("its size is not a multiple of a page of 4096 bytes");
  offered.page_bytes = 0;
  check_refused("its size is not a multiple of a page of 0 bytes");
}

TEST(AdoptSegment, RefusesOverlapWithASegmentOfThisProcess) {
  (void)pool->create_segment("boot", kBytes, PageSize::k4KiB, 1).take();
  offered.address = test::kTestPoolBase;
  check_refused("boot of this process lies there");
}

TEST(AdoptSegment, RefusesAnAddressThatIsInUse) {
  void* there = mmap(reinterpret_cast<void*>(kAddress + 4096), 4096, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  auto adopted = pool->adopt_segment(offered, std::move(file));
  munmap(there, 4096);
  CHECK(!adopted.ok());
  CHECK(std::strstr(adopted.error().answer, "is already in use in this process") != nullptr);
}

TEST(AdoptSegment, RefusesFilesThatAreNotWhatWasOffered) {
  file = make_file(kBytes - 4096);
  check_refused("its file has 4190208 bytes");
  file = make_file(kBytes, F_SEAL_SHRINK);
  check_refused("its file could shrink or grow");
  file = open_read_only(make_file(kBytes));
  check_refused("its file has different access rights");
  offered.is_writable = false;
  file = make_file(kBytes);
  check_refused("its file has different access rights");
  file = Fd(open("/proc/self/maps", O_RDONLY));
  check_refused("its file has pages of another size");
  file = Fd(open("/dev/zero", O_RDONLY));
  check_refused("its file has pages of another size");
  file = Fd();
  check_refused("Bad file descriptor");
  offered.page_bytes = 2 * kMiB;
  file = make_file(kBytes);
  check_refused("its file has pages of another size");
}
