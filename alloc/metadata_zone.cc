#include "alloc/metadata_zone.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

// The beginning of a record that was given back.
struct FreeRecord {
  FreeRecord* next;
  size_t bytes;
};

constexpr size_t kRecordGranularity = 4 * kKiB;

constinit std::span<std::byte> zone;
constinit uint64_t used_bytes = 0;
constinit FreeRecord* first_free = nullptr;
constinit std::atomic_flag zone_locked = ATOMIC_FLAG_INIT;

// A spin lock, usable before main: taken only when threads start and end, for a few instructions.
class ZoneLock {
 public:
  ZoneLock() noexcept { hold_metadata_zone(); }
  ~ZoneLock() { release_metadata_zone(); }
  ZoneLock(const ZoneLock&) = delete;
  ZoneLock& operator=(const ZoneLock&) = delete;
};

// Invariants: 1. At most the whole zone is used. 2. Each free record lies within the used bytes, at
// a multiple of kRecordGranularity, and all together are no larger than the used bytes: a record
// given back twice breaks this, or makes the list endless. Requires: the lock.
bool is_valid() noexcept {
  if (used_bytes > zone.size() || used_bytes % kRecordGranularity != 0) return false;
  uint64_t free_bytes = 0;
  for (const FreeRecord* each = first_free; each != nullptr; each = each->next) {
    const auto offset =
        static_cast<uint64_t>(reinterpret_cast<const std::byte*>(each) - zone.data());
    if (offset % kRecordGranularity != 0 || offset >= used_bytes) return false;
    if (each->bytes == 0 || each->bytes > used_bytes - offset) return false;
    free_bytes += each->bytes;
    if (free_bytes > used_bytes) return false;
  }
  return true;
}

void* reuse(size_t bytes) noexcept {
  for (FreeRecord** link = &first_free; *link != nullptr; link = &(*link)->next) {
    FreeRecord* record = *link;
    if (record->bytes != bytes) continue;
    *link = record->next;
    return record;
  }
  return nullptr;
}

}  // namespace

void metadata_zone_create(std::span<std::byte> memory) noexcept {
  BP_ASSERT(zone.empty());
  zone = memory;
}

void* metadata_zone_map(size_t bytes) noexcept {
  bytes = align_up(bytes, kRecordGranularity);
  const ZoneLock lock;
  BP_DCHECK_SLOW(is_valid());
  if (void* record = reuse(bytes)) {
    std::memset(record, 0, bytes);  // zeroed, as mmap would return it
    return record;
  }
  if (bytes > zone.size() - used_bytes) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* record = zone.data() + used_bytes;
  used_bytes += bytes;
  return record;
}

int metadata_zone_unmap(void* address, size_t bytes) noexcept {
  bytes = align_up(bytes, kRecordGranularity);
  const ZoneLock lock;
  const auto offset = static_cast<uint64_t>(static_cast<std::byte*>(address) - zone.data());
  BP_ASSERT(offset < used_bytes && bytes <= used_bytes - offset);
  auto* record = static_cast<FreeRecord*>(address);
  *record = {first_free, bytes};
  first_free = record;
  BP_DCHECK_SLOW(is_valid());
  return 0;
}

void hold_metadata_zone() noexcept {
  while (zone_locked.test_and_set(std::memory_order_acquire)) cpu_relax();
}

void release_metadata_zone() noexcept { zone_locked.clear(std::memory_order_release); }

uint64_t metadata_zone_used_bytes() noexcept {
  const ZoneLock lock;
  return used_bytes;
}

}  // namespace bedplate
