#include "alloc/metadata_zone.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

// A record that was given back begins with this while it waits.
struct FreeRecord {
  FreeRecord* next;
  size_t bytes;
};

constexpr size_t kRecordGranularity = 4 * kKiB;

constinit std::span<std::byte> zone;
constinit uint64_t used_bytes = 0;
constinit FreeRecord* first_free = nullptr;
constinit std::atomic_flag locked = ATOMIC_FLAG_INIT;

// A spin lock: taken at thread start and end only, for a few instructions, and usable before main.
class ZoneLock {
 public:
  ZoneLock() noexcept {
    while (locked.test_and_set(std::memory_order_acquire)) cpu_relax();
  }
  ~ZoneLock() { locked.clear(std::memory_order_release); }
  ZoneLock(const ZoneLock&) = delete;
  ZoneLock& operator=(const ZoneLock&) = delete;
};

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
  if (void* record = reuse(bytes)) {
    std::memset(record, 0, bytes);  // as a fresh mapping would be
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
  auto* record = static_cast<FreeRecord*>(address);
  *record = {first_free, bytes};
  first_free = record;
  return 0;
}

uint64_t metadata_zone_used_bytes() noexcept {
  const ZoneLock lock;
  return used_bytes;
}

}  // namespace bedplate
