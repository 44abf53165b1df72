// Registration: the table segment x device that makes every pool pointer usable by every device.
//
// A device registers each region of the pool once, before the seal; from then on its key for any
// pointer is arithmetic: which region, and is it inside. There is no lookup structure that can
// miss and no cache that can go stale. Memory that is not the pool's has no key (kNoKey).
// How many registration calls were made is counted, and after the seal the count must not move.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pinned_pool/pinned_pool.h"
#include "platform/result.h"

namespace bedplate {

// What a device needs beside an address: a buffer index for io_uring.
using Key = uint32_t;
inline constexpr Key kNoKey = ~Key{0};

// One piece of the pool as a device registers it: at most kRegionBytes, inside one segment.
struct Region {
  uint32_t number = 0;  // (address - kPoolBase) / kRegionBytes
  std::byte* address = nullptr;
  uint64_t bytes = 0;
};

struct KeyedRange {
  Key key = kNoKey;
  uint64_t bytes = 0;  // how many of the bytes asked for this key covers; the rest lies in the next
                       // region and has a key of its own
};

// One context of one device (a ring, a protection domain).
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const noexcept = 0;
  // Whether the device keeps the pages that it registered where they are (a long-term pin).
  virtual bool holds_pages() const noexcept = 0;
  // Registers all `regions` and writes one key for each into `keys`, which is as long.
  virtual Result<void> register_regions(std::span<const Region> regions, std::span<Key> keys) = 0;
};

// The keys of one device for the whole pool.
class KeyTable {
 public:
  // Registers every segment of `pool` with `device`. Requires: the pool is reserved, not sealed.
  // Errors: the device's.
  // If the device holds its pages, the pool's pages cannot be moved any more.
  Result<void> create(PinnedPool& pool, Device& device);

  // The key for [pointer, pointer + bytes), or kNoKey for memory that is not the pool's.
  // Threads: any. Cost: a subtraction, a comparison, one load; no call.
  KeyedRange key(const void* pointer, uint64_t bytes) const noexcept {
    const uint64_t offset = reinterpret_cast<uintptr_t>(pointer) - kPoolBase;
    if (offset >= kPoolSpanBytes) return {};
    const Entry& entry = entries_[offset >> kRegionBytesLog2];
    const uint64_t within = offset & (kRegionBytes - 1);
    if (within >= entry.bytes) return {};
    return {entry.key, std::min(bytes, entry.bytes - within)};
  }

 private:
  struct Entry {
    uint64_t bytes = 0;  // 0: no segment here
    Key key = kNoKey;
  };
  Entry entries_[kRegionCountMax];
};

// Fills `regions` with the regions of `pool`; returns how many there are.
size_t regions_of_pool(const PinnedPool& pool, std::span<Region> regions) noexcept;

struct RegistrationCounts {
  uint64_t total = 0;         // regions registered by this process, all devices
  uint64_t after_seal = 0;    // of these, after the process's pool was sealed: a defect if not 0
};
RegistrationCounts registration_counts() noexcept;

}  // namespace bedplate
