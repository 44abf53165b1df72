// The metadata zone, in separate processes: mimalloc uses the zone of the test program.
#include "alloc/metadata_zone.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "pinned_pool/boot_segment.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kRecordBytes = 4 * kKiB;

// In sanitizer builds no other code makes the zone.
void have_zone() {
  if (!test::kIsSanitized) return;
  metadata_zone_create(process_pool().carve(boot_segment(), "metadata", kMetadataZoneBytes));
}

bool is_all(const void* address, size_t bytes, unsigned char value) {
  const auto* begin = static_cast<const unsigned char*>(address);
  return std::all_of(begin, begin + bytes, [=](unsigned char byte) { return byte == value; });
}

}  // namespace

BP_PROBE(ZoneGivesZeroedPages) {
  have_zone();
  const uint64_t before = metadata_zone_used_bytes();
  void* one = metadata_zone_map(1);
  void* two = metadata_zone_map(kRecordBytes + 1);
  BP_PROBE_CHECK(one != MAP_FAILED && two != MAP_FAILED);
  BP_PROBE_CHECK(reinterpret_cast<uintptr_t>(one) % kRecordBytes == 0);
  BP_PROBE_CHECK(is_all(one, kRecordBytes, 0) && is_all(two, 2 * kRecordBytes, 0));
  BP_PROBE_CHECK(process_pool().contains(one, kRecordBytes));
  BP_PROBE_CHECK(metadata_zone_used_bytes() == before + 3 * kRecordBytes);
}

BP_PROBE(ZoneUsesRecordsOfTheSameSizeAgain) {
  have_zone();
  void* small = metadata_zone_map(kRecordBytes);
  void* large = metadata_zone_map(3 * kRecordBytes);
  std::memset(small, 0xff, kRecordBytes);
  std::memset(large, 0xff, 3 * kRecordBytes);
  BP_PROBE_CHECK(metadata_zone_unmap(small, kRecordBytes) == 0);
  BP_PROBE_CHECK(metadata_zone_unmap(large, 3 * kRecordBytes) == 0);
  const uint64_t used = metadata_zone_used_bytes();
  BP_PROBE_CHECK(metadata_zone_map(3 * kRecordBytes - 5) == large);
  BP_PROBE_CHECK(metadata_zone_map(7) == small);
  BP_PROBE_CHECK(is_all(small, kRecordBytes, 0) && is_all(large, 3 * kRecordBytes, 0));
  BP_PROBE_CHECK(metadata_zone_used_bytes() == used);
  void* other = metadata_zone_map(2 * kRecordBytes);  // records are neither split nor merged
  BP_PROBE_CHECK(other != small && other != large);
}

BP_PROBE(ZoneSaysNoWhenItIsUsedUp) {
  have_zone();
  errno = 0;
  BP_PROBE_CHECK(metadata_zone_map(kMetadataZoneBytes + 1) == MAP_FAILED);
  BP_PROBE_CHECK(errno == ENOMEM);
  void* last = nullptr;
  for (;;) {
    void* record = metadata_zone_map(kRecordBytes);
    if (record == MAP_FAILED) break;
    last = record;
  }
  BP_PROBE_CHECK(metadata_zone_used_bytes() == kMetadataZoneBytes);
  BP_PROBE_CHECK(metadata_zone_unmap(last, kRecordBytes) == 0);
  BP_PROBE_CHECK(metadata_zone_map(kRecordBytes) == last);
  BP_PROBE_CHECK(metadata_zone_map(kRecordBytes) == MAP_FAILED);
}

BP_PROBE(ZoneServesSeveralThreads) {
  have_zone();
  constexpr int kThreadCount = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 2'000; ++round) {
        const size_t bytes = static_cast<size_t>(1 + round % 3) * kRecordBytes;
        void* record = metadata_zone_map(bytes);
        BP_PROBE_CHECK(record != MAP_FAILED);
        BP_PROBE_CHECK(is_all(record, bytes, 0));
        std::memset(record, i + 1, bytes);
        BP_PROBE_CHECK(is_all(record, bytes, static_cast<unsigned char>(i + 1)));
        metadata_zone_unmap(record, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The model: each record is zeroed, overlaps no other, and keeps what was written.
BP_PROBE(ZoneAgreesWithASimpleModel) {
  have_zone();
  struct Held {
    unsigned char* address;
    size_t bytes;
    unsigned char mark;
  };
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::vector<Held> held;
  bool good = true;
  for (int round = 0; round < 5'000 && good; ++round) {
    if (held.size() < 24 && random() % 2 == 0) {
      const size_t bytes = (1 + random() % 4) * kRecordBytes;
      auto* address = static_cast<unsigned char*>(metadata_zone_map(bytes));
      good = address != MAP_FAILED && is_all(address, bytes, 0);
      const auto mark = static_cast<unsigned char>(1 + random() % 255);
      if (good) std::memset(address, mark, bytes);
      held.push_back({address, bytes, mark});
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      const Held last = held.back();
      held.pop_back();
      good = is_all(last.address, last.bytes, last.mark);
      metadata_zone_unmap(last.address, last.bytes);
    }
  }
  if (!good) test::probe_failed(__FILE__, __LINE__, seed.text());
}

TEST_GROUP(MetadataZone){};

TEST(MetadataZone, GivesZeroedPages) { BP_CHECK_PROBE(ZoneGivesZeroedPages); }

TEST(MetadataZone, UsesRecordsOfTheSameSizeAgain) {
  BP_CHECK_PROBE(ZoneUsesRecordsOfTheSameSizeAgain);
}

TEST(MetadataZone, SaysNoWhenItIsUsedUp) { BP_CHECK_PROBE(ZoneSaysNoWhenItIsUsedUp); }

TEST(MetadataZone, ServesSeveralThreads) { BP_CHECK_PROBE(ZoneServesSeveralThreads); }

TEST(MetadataZone, AgreesWithASimpleModel) { BP_CHECK_PROBE(ZoneAgreesWithASimpleModel); }

TEST(MetadataZone, IsMadeOnce) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_DIES("assertion failed: zone.empty()", metadata_zone_create({}));
}
