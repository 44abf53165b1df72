// Keys: what has one, what has none, how far one reaches, and random pointers against a slow
// reference. The devices are fakes but for the ring at the end.
#include "transport/registration.h"

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <liburing.h>
#include <sys/mman.h>

#include "pinned_pool/no_way_back.h"
#include "platform/file.h"
#include "tests/support/death_test.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "transport/uring/uring_device.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::TestPool;

namespace {

constexpr uint64_t kPage = 4 * kKiB;

// Numbers the regions from 100 on and remembers what it was given.
class FakeDevice final : public Device {
 public:
  const char* name() const noexcept override { return "fake"; }
  bool holds_pages() const noexcept override { return holds; }
  bool holds = false;
  Result<void> register_regions(std::span<const Region> given, std::span<Key> keys) override {
    if (fails) {
      errno = ENOMEM;
      return error_from_errno("registering with the fake device");
    }
    regions.assign(given.begin(), given.end());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(100 + i);
    return {};
  }
  bool fails = false;
  std::vector<Region> regions;
};

// Any region is looked at, one after the other.
KeyedRange slow_key(const std::vector<Region>& regions, const void* pointer, uint64_t bytes) {
  const auto wanted = reinterpret_cast<uintptr_t>(pointer);
  for (size_t i = 0; i < regions.size(); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(regions[i].address);
    if (wanted < begin || wanted >= begin + regions[i].bytes) continue;
    return {static_cast<Key>(100 + i), std::min(bytes, begin + regions[i].bytes - wanted)};
  }
  return {};
}

const char kConstant[] = "a constant of the program";
int static_data = 1;

}  // namespace

TEST_GROUP(KeyTable) {
  TestPool pool{test::kTestPoolBaseInRange};
  FakeDevice device;
  KeyTable table;

  Segment* add(const OwnerName& owner, uint64_t bytes) {
    auto created = pool->create_segment(owner, bytes, PageSize::k4KiB, 1);
    return created.ok() ? created.value() : nullptr;
  }

  // A segment of one page that claims to have `bytes`: keys are arithmetic and touch no memory.
  Segment& pretend(const OwnerName& owner, uint64_t bytes) {
    Segment* segment = add(owner, kPage);
    CHECK(segment != nullptr);
    segment->bytes = bytes;
    return *segment;
  }

  void create() { CHECK(table.create(*pool, device).ok()); }

  // munmap goes by the segments' sizes, and must only take what is there.
  void teardown() override {
    for (uint32_t i = 0; i < pool->segment_count(); ++i) {
      Segment& segment = pool->segment(i);
      segment.bytes = std::min(segment.bytes, true_bytes);
    }
  }
  uint64_t true_bytes = kPage;

  void check_key(Key key, uint64_t covered, const void* pointer, uint64_t bytes) {
    const KeyedRange got = table.key(pointer, bytes);
    CHECK_EQUAL(key, got.key);
    CHECK_EQUAL(covered, got.bytes);
  }
  void check_no_key(const void* pointer) { check_key(kNoKey, 0, pointer, 1); }
};

TEST(KeyTable, ADeviceThatHoldsPagesStopsThemFromBeingMoved) {
  KeyTable other;
  CHECK(other.create(*pool, device).ok());
  LONGS_EQUAL(0, pool->stoppers() & kPinStops);
  device.holds = true;
  CHECK(other.create(*pool, device).ok());
  CHECK((pool->stoppers() & kPinStops) != 0);
}

TEST(KeyTable, EverySegmentHasAKeyFromItsFirstByteToItsLast) {
  true_bytes = 5 * kPage;
  std::vector<Segment*> segments;
  for (const char* owner : {"one", "two", "three"}) {
    segments.push_back(add(owner, (segments.size() + 1) * kPage));
    CHECK(segments.back() != nullptr);
  }
  create();
  for (size_t i = 0; i < segments.size(); ++i) {
    const Key key = static_cast<Key>(100 + i);
    std::byte* begin = segments[i]->address;
    check_key(key, 1, begin, 1);
    check_key(key, segments[i]->bytes, begin, segments[i]->bytes);
    check_key(key, 1, begin + segments[i]->bytes - 1, 1);
    check_no_key(begin - 1);
    check_no_key(begin + segments[i]->bytes);
  }
}

TEST(KeyTable, AKeyCoversNoMoreThanItsSegment) {
  Segment& segment = pretend("one", 3 * kPage);
  create();
  check_key(100, 10, segment.address + 3 * kPage - 10, 4 * kPage);
  check_key(100, 3 * kPage, segment.address, UINT64_MAX);
  check_key(100, 0, segment.address, 0);
}

TEST(KeyTable, WhatCrossesARegionIsSplitAndEachPartHasItsKey) {
  Segment& segment = pretend("large", 2 * kRegionBytes + 5 * kPage);
  create();
  LONGS_EQUAL(3, device.regions.size());
  CHECK_EQUAL(kRegionBytes, device.regions[0].bytes);
  CHECK_EQUAL(kRegionBytes, device.regions[1].bytes);
  CHECK_EQUAL(5 * kPage, device.regions[2].bytes);
  CHECK_EQUAL(device.regions[0].number + 2, device.regions[2].number);
  std::byte* border = segment.address + kRegionBytes;
  check_key(100, 7, border - 7, 100);
  check_key(101, 93, border, 93);
  check_key(101, kRegionBytes, border, kRegionBytes + 1);
  check_key(102, 1, border + kRegionBytes, 1);
  check_key(102, 1, border + kRegionBytes + 5 * kPage - 1, kPage);
  check_no_key(border + kRegionBytes + 5 * kPage);
}

TEST(KeyTable, ASegmentOfExactlyARegionTakesOne) {
  pretend("large", kRegionBytes);
  Segment& next = pretend("next", kPage);
  create();
  LONGS_EQUAL(2, device.regions.size());
  // The segment behind was created while the first had a page: it begins one region further.
  CHECK_EQUAL(device.regions[0].number + 1, device.regions[1].number);
  check_key(100, 1, next.address - 1, 100);
  check_key(101, 100, next.address, 100);
}

TEST(KeyTable, MemoryThatIsNotThePoolsHasNoKey) {
  Segment& segment = pretend("one", kPage);
  create();
  int on_the_stack = 0;
  void* elsewhere = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check_no_key(&on_the_stack);
  check_no_key(kConstant);
  check_no_key(&static_data);
  check_no_key(elsewhere);
  check_no_key(nullptr);
  check_no_key(reinterpret_cast<void*>(UINTPTR_MAX));
  // In the range of the pool, but no segment: a gap behind one, the last byte, one too far.
  check_no_key(segment.address + kPage);
  check_no_key(segment.address + kRegionBytes);
  check_no_key(reinterpret_cast<void*>(kPoolBase + kPoolSpanBytes - 1));
  check_no_key(reinterpret_cast<void*>(kPoolBase + kPoolSpanBytes));
  check_no_key(reinterpret_cast<void*>(kPoolBase - 1));
  munmap(elsewhere, kPage);
}

TEST(KeyTable, BeforeItsCreationThereAreNoKeys) {
  Segment& segment = pretend("one", kPage);
  check_no_key(segment.address);
}

TEST(KeyTable, CountsWhatItRegisters) {
  pretend("one", kPage);
  pretend("two", kPage);
  const RegistrationCounts before = registration_counts();
  create();
  KeyTable second;
  FakeDevice other;
  CHECK(second.create(*pool, other).ok());
  const RegistrationCounts after = registration_counts();
  CHECK_EQUAL(before.total + 4, after.total);
  CHECK_EQUAL(before.after_seal, after.after_seal);
}

TEST(KeyTable, PassesTheErrorOfItsDeviceOnAndHasNoKeys) {
  Segment& segment = pretend("one", kPage);
  device.fails = true;
  const Result<void> outcome = table.create(*pool, device);
  CHECK(!outcome.ok());
  STRCMP_EQUAL("registering with the fake device", outcome.error().doing);
  check_no_key(segment.address);
}

// In a child, because nothing takes a seal back.
TEST(KeyTable, ARegistrationAfterTheSealIsCounted) {
  pretend("one", kPage);
  device.regions.reserve(16);
  const auto ended = test::run_forked([this] {
    const RegistrationCounts before = registration_counts();
    pool->seal();
    if (registration_counts().after_seal != before.after_seal) _exit(3);
    if (!table.create(*pool, device).ok()) _exit(4);
    const RegistrationCounts after = registration_counts();
    _exit(after.after_seal == before.after_seal + 1 && after.total == before.total + 1 ? 42 : 5);
  });
  LONGS_EQUAL(42, ended.exit_code);
}

TEST(KeyTable, APoolOutsideTheRangeIsADefect) {
  TestPool outside(kPoolBase - 100 * kRegionBytes);
#ifndef __SANITIZE_THREAD__
  CHECK(outside->create_segment("one", kPage, PageSize::k4KiB, 1).ok());
  BP_CHECK_DIES("kRegionCountMax", (void)table.create(*outside, device));
#endif
}

TEST(KeyTable, AgreesWithASlowSearchForRandomPointers) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  for (int i = 0; i < 12; ++i) {
    // A segment is created with a page, so it gets one region: it may claim no more.
    pretend("one", kPage * (1 + random() % (kRegionBytes / kPage)));
  }
  create();
  std::vector<uintptr_t> edges = {kPoolBase, kPoolBase + kPoolSpanBytes};
  for (const Region& region : device.regions) {
    edges.push_back(reinterpret_cast<uintptr_t>(region.address));
    edges.push_back(reinterpret_cast<uintptr_t>(region.address) + region.bytes);
  }
  bool same = true;
  for (int step = 0; step < 100'000 && same; ++step) {
    uintptr_t address = random();
    if (step % 4 == 1) address = kPoolBase + random() % kPoolSpanBytes;
    if (step % 4 == 2) address = edges[random() % edges.size()] + random() % 8192 - 4096;
    if (step % 4 == 3) {
      const Region& region = device.regions[random() % device.regions.size()];
      address = reinterpret_cast<uintptr_t>(region.address) + random() % kRegionBytes;
    }
    const uint64_t bytes = random() >> random() % 64;
    const auto* pointer = reinterpret_cast<void*>(address);
    const KeyedRange fast = table.key(pointer, bytes);
    const KeyedRange slow = slow_key(device.regions, pointer, bytes);
    same = fast.key == slow.key && fast.bytes == slow.bytes;
  }
  CHECK_TEXT(same, seed.text());
}

// ---- io_uring as the device -----------------------------------------------------------------------

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
    __kernel_timespec bound = {10, 0};
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
  STRCMP_EQUAL("io_uring", device.name());
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
  const Result<void> again = table.create(*pool, device);  // a ring takes buffers once
  CHECK(!again.ok());
  STRCMP_EQUAL("registering 80 KiB of the pool with io_uring", again.error().doing);
  STRCMP_EQUAL("Device or resource busy", again.error().answer);
  CHECK(std::strstr(again.error().cure, "sockets = \"epoll\"") != nullptr);
}
