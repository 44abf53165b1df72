// Keys: the memory that has one, the range of a key, the limits of a device, and random pointers
// compared with a slow reference. The devices are fakes.
#include "transport/registration.h"

#include <random>
#include <vector>

#include <sys/mman.h>

#include "pinned_pool/no_way_back.h"
#include "platform/sanitized_build.h"
#include "tests/support/death_test.h"
#include "tests/support/fake_device.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::FakeDevice;
using test::TestPool;

namespace {

constexpr uint64_t kPage = 4 * kKiB;

// Searches all regions, one after the other.
KeyedRange slow_key(const std::vector<Region>& regions, const void* pointer, uint64_t bytes) {
  const auto wanted = reinterpret_cast<uintptr_t>(pointer);
  for (size_t i = 0; i < regions.size(); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(regions[i].address);
    if (wanted < begin || wanted >= begin + regions[i].bytes) continue;
    return {regions[i].key, std::min(bytes, begin + regions[i].bytes - wanted)};
  }
  return {};
}

const char kConstant[] = "a constant of the program";
int static_data = 1;

}  // namespace

// In a process of its own, because a seal is final.
BP_PROBE(RegistrationAfterTheSeal) {
  PinnedPool& pool = process_pool();
  const RegistrationCounts before = registration_counts();
  pool.seal();
  BP_PROBE_CHECK(registration_counts().after_seal == before.after_seal);
  FakeDevice device;
  KeyTable table;
  BP_PROBE_CHECK(table.create(pool, device).ok());
  const RegistrationCounts after = registration_counts();
  BP_PROBE_CHECK(after.after_seal == before.after_seal + pool.segment_count());
  BP_PROBE_CHECK(after.total == before.total + pool.segment_count());
}

TEST_GROUP(KeyTable) {
  TestPool pool{test::kTestPoolBaseInRange};
  FakeDevice device;  // outlives the table
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

  // munmap uses the segments' sizes, which must be true again.
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
  // Checks keys at the begin and the end of each region, and that there is none before the first
  // region and behind the last.
  void check_borders() {
    for (size_t i = 0; i < device.regions.size(); ++i) {
      const Region& region = device.regions[i];
      check_key(100 + i, region.bytes, region.address, region.bytes);
      check_key(100 + i, 1, region.address + region.bytes - 1, 100);
    }
    check_no_key(device.regions.front().address - 1);
    check_no_key(device.regions.back().address + device.regions.back().bytes);
  }
  void check_refusal(const char* doing, const char* answer, const char* cure) {
    const Result<void> outcome = table.create(*pool, device);
    CHECK(!outcome.ok());
    STRCMP_EQUAL(doing, outcome.error().doing);
    STRCMP_EQUAL(answer, outcome.error().answer);
    STRCMP_EQUAL(cure, outcome.error().cure);
    LONGS_EQUAL(0, device.registrations);
    check_no_key(pool->segment(0).address);
  }
  void check_no_key(const void* pointer) { check_key(kNoKey, 0, pointer, 1); }
};

TEST(KeyTable, ADeviceThatHoldsPagesStopsThemFromBeingMoved) {
  create();
  LONGS_EQUAL(0, pool->stoppers() & kPinStops);
  device.limits.holds_pages = true;
  KeyTable other;
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
    const Key key = 100 + i;
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
  device.limits.region_bytes_max = kRegionBytes;
  Segment& segment = pretend("large", 2 * kRegionBytes + 5 * kPage);
  create();
  LONGS_EQUAL(3, device.regions.size());
  CHECK_EQUAL(kRegionBytes, device.regions[0].bytes);
  CHECK_EQUAL(kRegionBytes, device.regions[1].bytes);
  CHECK_EQUAL(5 * kPage, device.regions[2].bytes);
  CHECK(device.regions[0].address + 2 * kRegionBytes == device.regions[2].address);
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
  // The next segment was created while the first had one page, so it begins one region further.
  CHECK(device.regions[0].address + kRegionBytes == device.regions[1].address);
  check_key(100, 1, next.address - 1, 100);
  check_key(101, 100, next.address, 100);
}

TEST(KeyTable, MemoryThatIsNotThePoolsHasNoKey) {
  Segment& segment = pretend("one", kPage);
  create();
  int on_the_stack = 0;
  void* elsewhere =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check_no_key(&on_the_stack);
  check_no_key(kConstant);
  check_no_key(&static_data);
  check_no_key(elsewhere);
  check_no_key(nullptr);
  check_no_key(reinterpret_cast<void*>(UINTPTR_MAX));
  // No segment: two addresses behind one, the last byte of the pool's range, and the bytes around
  // the range.
  check_no_key(segment.address + kPage);
  check_no_key(segment.address + kRegionBytes);
  check_no_key(reinterpret_cast<void*>(kPoolBase + kPoolSpanBytes - 1));
  check_no_key(reinterpret_cast<void*>(kPoolBase + kPoolSpanBytes));
  check_no_key(reinterpret_cast<void*>(kPoolBase - 1));
  munmap(elsewhere, kPage);
}

TEST(KeyTable, WhatIsReadOnlyHasAKeyOnlyWhereTheDeviceTakesIt) {
  Segment& granted = *add("granted", kPage);
  const Segment& own = *add("own", kPage);
  granted.is_writable = false;
  create();
  LONGS_EQUAL(1, device.regions.size());
  CHECK(table.key(granted.address, 1).key == kNoKey);
  CHECK(table.key(own.address, 1).key == 100);
  FakeDevice reader;
  reader.limits.takes_read_only = true;
  KeyTable all;
  CHECK(all.create(*pool, reader).ok());
  CHECK(all.key(granted.address, 1).key == 100);
  CHECK(all.key(own.address, 1).key == 101);
}

TEST(KeyTable, WhatIsNotForDevicesHasNoKeyWithAny) {
  Segment& exchange = *add("exchange", kPage);
  const Segment& own = *add("own", kPage);
  exchange.is_for_devices = false;
  device.limits.takes_read_only = true;
  create();
  LONGS_EQUAL(1, device.regions.size());
  check_no_key(exchange.address);
  CHECK(table.key(own.address, 1).key == 100);
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
  FakeDevice other;
  KeyTable second;
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

TEST(KeyTable, ARegistrationAfterTheSealIsCounted) { BP_CHECK_PROBE(RegistrationAfterTheSeal); }

TEST(KeyTable, APoolOutsideTheRangeIsADefect) {
  TestPool outside(kPoolBase - 100 * kRegionBytes);
#ifndef BP_THREAD_SANITIZER
  CHECK(outside->create_segment("one", kPage, PageSize::k4KiB, 1).ok());
  BP_CHECK_DIES("kPoolSpanBytes", (void)table.create(*outside, device));
#endif
}

// ---- Limits of a device ----

TEST(KeyTable, ADeviceWithoutLimitsTakesASegmentInOnePiece) {
  pretend("small", kPage);
  Segment& segment = pretend("large", 20 * kRegionBytes + 5 * kPage);
  create();
  LONGS_EQUAL(2, device.regions.size());
  CHECK_EQUAL(segment.bytes, device.regions[1].bytes);
  check_borders();
  // Each of these addresses has the key, which reaches to the segment's end.
  for (uint64_t at = 0; at < segment.bytes; at += kRegionBytes / 2) {
    check_key(101, segment.bytes - at, segment.address + at, UINT64_MAX);
  }
}

TEST(KeyTable, ADeviceOfSmallerRegionsGetsTheSegmentsSplit) {
  device.limits.region_bytes_max = 256 * kMiB;
  pretend("small", kPage);
  Segment& segment = pretend("large", 2 * kRegionBytes + 5 * kPage);
  create();
  LONGS_EQUAL(1 + 8 + 1, device.regions.size());
  for (size_t i = 1; i < 9; ++i) CHECK_EQUAL(256 * kMiB, device.regions[i].bytes);
  CHECK_EQUAL(5 * kPage, device.regions[9].bytes);
  check_borders();
  check_key(101, 100, segment.address + 256 * kMiB - 100, 1000);
  check_key(102, 900, segment.address + 256 * kMiB, 900);
}

TEST(KeyTable, RegionsOfAnySizeEndWhereAGranuleEnds) {
  struct {
    uint64_t bytes_max;
    uint64_t bytes;
  } const cases[] = {{kMiB, kMiB},
                     {3 * kMiB - 1, 2 * kMiB},
                     {700 * kMiB, 512 * kMiB},
                     {kRegionBytes - 1, kRegionBytes / 2},
                     {kRegionBytes + 1, kRegionBytes},
                     {3 * kRegionBytes, 3 * kRegionBytes},
                     {4 * kRegionBytes - 1, 3 * kRegionBytes}};
  Segment& segment = pretend("large", 7 * kRegionBytes + 5 * kPage);
  for (const auto& each : cases) {
    device.limits.region_bytes_max = each.bytes_max;
    create();
    CHECK_EQUAL((segment.bytes + each.bytes - 1) / each.bytes, device.regions.size());
    CHECK_EQUAL(each.bytes, device.regions[0].bytes);
    check_borders();
    table.destroy();
  }
}

TEST(KeyTable, ADeviceOfTooSmallRegionsIsRefused) {
  pretend("one", kPage);
  device.limits.region_bytes_max = kMiB - 1;
  check_refusal(
      "fitting the pool of 4 KiB into the limits of fake",
      "it accepts regions of at most 1048575 bytes, and the pool's regions have at least 1 MiB",
      "use another device");
}

TEST(KeyTable, ADeviceOfTooFewRegionsIsRefusedWithTheSum) {
  device.limits.region_bytes_max = kRegionBytes;
  device.limits.region_count_max = 4;
  pretend("boot", 16 * kMiB);
  pretend("volume:ram0", kGiB);
  pretend("heap", 2 * kGiB + kPage);
  check_refusal(
      "fitting the pool of 3162116 KiB into the limits of fake",
      "5 regions of at most 1 GiB are needed (boot 1 + volume:ram0 1 + heap 3), it accepts "
      "4",
      "make [pool] bytes smaller or use fewer segments, until 4 regions are enough (`bedplate "
      "plan` shows them)");
  device.limits.region_count_max = 5;
  create();
  LONGS_EQUAL(5, device.regions.size());
}

TEST(KeyTable, ADeviceOfTooFewBytesIsRefusedWithTheSum) {
  device.limits.total_bytes_max = 48 * kGiB;
  device.limits.instead = "set [fake] enabled = false";
  pretend("boot", kPage);
  Segment& heap = pretend("heap", 48 * kGiB);
  check_refusal("fitting the pool of 50331652 KiB into the limits of fake",
                "50331652 KiB in 2 regions of at most 48 GiB are needed, it accepts 48 GiB in all",
                "make [pool] bytes at most 51539607552 (`bedplate plan` shows who needs what); or "
                "set [fake] enabled = false");
  heap.bytes -= kPage;
  create();
}

TEST(KeyTable, ALongSumIsCutAndStillAddsUp) {
  std::vector<SegmentSize> segments(40, SegmentSize{"a volume with a rather long name", 2 * kGiB});
  const Result<void> outcome = check_fit(DeviceKind{.name = "wide"}, segments);
  CHECK(outcome.ok());
  const DeviceKind narrow = {.name = "narrow", .region_bytes_max = kGiB, .region_count_max = 2048};
  segments.insert(segments.begin(), {"heap", 2000 * kGiB});
  const Result<void> refused = check_fit(narrow, segments);
  CHECK(!refused.ok());
  STRCMP_EQUAL("2080 regions of at most 1 GiB are needed (heap 2000 + a volume with a rather long "
               "name 2 + a volume with a rather long name 2 + 76 in 38 more segments), it accepts "
               "2048",
               refused.error().answer);
}

// ---- Deregistration ----

TEST(KeyTable, GivesNoKeyAnyMoreOnceItsDeviceDeregisters) {
  Segment& segment = pretend("one", kPage);
  device.table = &table;
  create();
  check_key(100, 1, segment.address, 1);
  table.destroy();
  LONGS_EQUAL(1, device.deregistrations);
  CHECK(device.is_same);
  CHECK_EQUAL(kNoKey, device.key_at_deregistration);
  check_no_key(segment.address);
  table.destroy();
  LONGS_EQUAL(1, device.deregistrations);
}

TEST(KeyTable, DeregistersAtItsEnd) {
  pretend("one", kPage);
  {
    KeyTable brief;
    CHECK(brief.create(*pool, device).ok());
    LONGS_EQUAL(0, device.deregistrations);
  }
  LONGS_EQUAL(1, device.deregistrations);
}

TEST(KeyTable, DeregistersNothingThatWasNotRegistered) {
  pretend("one", kPage);
  device.fails = true;
  CHECK(!table.create(*pool, device).ok());
  table.destroy();
  LONGS_EQUAL(0, device.deregistrations);
}

TEST(KeyTable, AgreesWithASlowSearchForRandomPointers) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  for (int i = 0; i < 12; ++i) {
    // A segment is created with one page, so it has one region, and may claim no more.
    pretend("one", kPage * (1 + random() % (kRegionBytes / kPage)));
  }
  pretend("large", kPage * (1 + random() % (9 * kRegionBytes / kPage)));
  bool same = true;
  for (int round = 0; round < 10 && same; ++round) {
    device.limits.region_bytes_max = kMiB + (random() >> (24 + random() % 16));
    create();
    std::vector<uintptr_t> edges = {kPoolBase, kPoolBase + kPoolSpanBytes};
    for (const Region& region : device.regions) {
      edges.push_back(reinterpret_cast<uintptr_t>(region.address));
      edges.push_back(reinterpret_cast<uintptr_t>(region.address) + region.bytes);
    }
    for (int step = 0; step < 10'000 && same; ++step) {
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
    table.destroy();
  }
  CHECK_TEXT(same, seed.text());
}
