// io_uring as the device of the pool: its keys really work, its limits are as kUringKind says, and
// its registration ends before its ring.
#include "transport/uring/uring_device.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <liburing.h>
#include <sys/mman.h>

#include "platform/file.h"
#include "platform/sanitized_build.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::TestPool;

namespace {

constexpr uint64_t kPage = 4 * kKiB;

// Only root may pin any amount of memory.
constexpr const char* kTooMuch = "so much memory cannot be locked here (ulimit -l)";
bool is_too_much(const Result<void>& outcome) {
  return !outcome.ok() && geteuid() != 0 &&
         std::strcmp(outcome.error().answer, "Cannot allocate memory") == 0;
}

}  // namespace

TEST_GROUP(UringDevice) {
  TestPool pool{test::kTestPoolBaseInRange};
  io_uring ring = {};
  bool has_ring = false;
  Fd file;

  void setup() override {
    has_ring = io_uring_queue_init(8, &ring, 0) == 0;
    file = Fd(memfd_create("registration-test", MFD_CLOEXEC));
    CHECK(pool->create_segment("one", 4 * kPage, PageSize::k4KiB, 1).ok());
    CHECK(pool->create_segment("two", 16 * kPage, PageSize::k4KiB, 1).ok());
  }
  void teardown() override {
    if (has_ring) io_uring_queue_exit(&ring);
  }

  // Submits one operation and returns its result.
  int32_t finish() {
    io_uring_submit(&ring);
    io_uring_cqe* completion = nullptr;
    __kernel_timespec bound = {test::kPatienceNs / kNsPerSecond, 0};
    if (io_uring_wait_cqe_timeout(&ring, &completion, &bound) != 0) return -ETIME;
    const int32_t result = completion->res;
    io_uring_cqe_seen(&ring, completion);
    return result;
  }
  int32_t write_fixed(const void* from, unsigned bytes, Key key) {
    io_uring_prep_write_fixed(io_uring_get_sqe(&ring), file.number(), from, bytes, 0,
                              static_cast<int>(key));
    return finish();
  }
  int32_t read_fixed(void* to, unsigned bytes, Key key) {
    io_uring_prep_read_fixed(io_uring_get_sqe(&ring), file.number(), to, bytes, 0,
                             static_cast<int>(key));
    return finish();
  }
};

TEST(UringDevice, MakesPoolMemoryAFixedBufferForReadsAndWrites) {
  if (!has_ring) BP_SKIP("io_uring is not available here");
  UringDevice device(ring);
  STRCMP_EQUAL("io_uring", device.kind().name);
  KeyTable table;
  CHECK(table.create(*pool, device).ok());
  std::byte* from = pool->segment(0).address + 100;
  std::byte* to = pool->segment(1).address + 16 * kPage - 5000;
  for (unsigned i = 0; i < 5000; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  const KeyedRange source = table.key(from, 5000);
  const KeyedRange target = table.key(to, 5000);
  CHECK_EQUAL(5000, source.bytes);
  CHECK_EQUAL(5000, target.bytes);
  LONGS_EQUAL(5000, write_fixed(from, 5000, source.key));
  LONGS_EQUAL(5000, read_fixed(to, 5000, target.key));
  MEMCMP_EQUAL(from, to, 5000);
  // The kernel holds each key to its region: another region's key, or a byte too many, is refused.
  LONGS_EQUAL(-EFAULT, write_fixed(from, 5000, target.key));
  LONGS_EQUAL(-EFAULT, read_fixed(to, 5001, target.key));
}

TEST(UringDevice, SaysWhyItCouldNotRegisterAndHowToGoOn) {
  if (!has_ring) BP_SKIP("io_uring is not available here");
  UringDevice device(ring);
  KeyTable table;
  CHECK(table.create(*pool, device).ok());
  KeyTable second;
  const Result<void> again = second.create(*pool, device);  // a ring takes buffers once
  CHECK(!again.ok());
  STRCMP_EQUAL("registering 80 KiB of the pool with io_uring", again.error().doing);
  STRCMP_EQUAL("Device or resource busy", again.error().answer);
  CHECK(std::strstr(again.error().cure, "sockets = \"epoll\"") != nullptr);
}

TEST(UringDevice, TakesABufferOfItsLimitAndNoPageMore) {
  if (!has_ring) BP_SKIP("io_uring is not available here");
  // Maps the same 2 MiB repeatedly: a large range with little memory.
  constexpr uint64_t kPieceBytes = 2 * kMiB;
  const uint64_t limit_bytes = kUringKind.region_bytes_max;
  CHECK(ftruncate(file.number(), kPieceBytes) == 0);
  const int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  auto* memory =
      static_cast<std::byte*>(mmap(nullptr, limit_bytes + kPieceBytes, PROT_NONE, kFlags, -1, 0));
  for (uint64_t at = 0; at <= limit_bytes; at += kPieceBytes) {
    CHECK(mmap(memory + at, kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               file.number(), 0) == memory + at);
  }
  UringDevice device(ring);
  Region region{memory, limit_bytes + kPage};
  const Result<void> refused = device.register_regions({&region, 1});
  CHECK(!refused.ok());
  STRCMP_EQUAL("Bad address", refused.error().answer);
  region.bytes = limit_bytes;
  const Result<void> outcome = device.register_regions({&region, 1});
  if (is_too_much(outcome)) BP_SKIP(kTooMuch);
  CHECK_TEXT(outcome.ok(), outcome.ok() ? "" : outcome.error().answer);
  device.deregister_regions({&region, 1});
  munmap(memory, limit_bytes + kPieceBytes);
}

TEST(UringDevice, TakesAsManyBuffersAsItSaysAndNoneMore) {
  if (!has_ring) BP_SKIP("io_uring is not available here");
  UringDevice device(ring);
  const Region page{pool->segment(0).address, kPage};
  std::vector<Region> regions(kUringKind.region_count_max + 1, page);
  CHECK(!device.register_regions(regions).ok());
  regions.pop_back();
  const Result<void> outcome = device.register_regions(regions);
  if (is_too_much(outcome)) BP_SKIP(kTooMuch);
  CHECK_TEXT(outcome.ok(), outcome.ok() ? "" : outcome.error().answer);
  device.deregister_regions(regions);
}

TEST(UringDevice, IsFreeForAnotherTableOnceTheFirstIsDestroyed) {
  if (!has_ring) BP_SKIP("io_uring is not available here");
  UringDevice device(ring);
  KeyTable first;
  CHECK(first.create(*pool, device).ok());
  const Key key = first.key(pool->segment(0).address, 10).key;
  LONGS_EQUAL(10, write_fixed(pool->segment(0).address, 10, key));
  first.destroy();
  LONGS_EQUAL(-EFAULT, write_fixed(pool->segment(0).address, 10, key));
  KeyTable second;
  CHECK(second.create(*pool, device).ok());
}

TEST(UringDevice, EndingBeforeItsRegistrationIsADefect) {
  if (!has_ring) BP_SKIP("io_uring is not available here");
#ifndef BP_THREAD_SANITIZER
  BP_CHECK_DIES("!is_registered_", {
    KeyTable table;
    UringDevice device(ring);
    (void)table.create(*pool, device);
  });
#endif
}
