// Registration: a table for each device, with the device's key for each region of the pool.
//
// A device registers all segments for devices once, before the seal. After that, key() computes a
// pointer's region from its address, checks the range, and returns the region's key. There is no
// cache that could miss or go stale. Memory outside these segments has no key (kNoKey).
// Registrations are counted, and after the seal the count must not change.
//
// A new kind of device implements Device; nothing here changes. It states its limits as numbers
// (DeviceKind); the code here cuts the pool into regions accordingly, or refuses the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "platform/result.h"

namespace bedplate {

// The key that a device needs beside an address. 64 bits hold every kind of key: io_uring's buffer
// index, the lkey of a verbs region with the region's number in the upper half, an offset that a
// bus or a GPU adds to an address.
using Key = uint64_t;
inline constexpr Key kNoKey = ~Key{0};

// A part of a segment as a device registers it.
struct Region {
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  Key key = kNoKey;
};

struct KeyedRange {
  Key key = kNoKey;
  uint64_t bytes = 0;  // the key covers this many of the requested bytes; the rest lies in the
                       // next region and has a key of its own
};

// Facts about a device that are known before anything is registered with it.
struct DeviceKind {
  const char* name = "";
  const char* instead = "";  // the end of an error's cure: how to do without the device; or empty
  bool holds_pages = false;  // registered pages cannot move (a long-term pin)
  // Whether it also registers segments that are mapped read-only here, as in a process that joined
  // a pool. If not, pointers into them have no key.
  bool takes_read_only = false;
  uint64_t region_bytes_max = UINT64_MAX;
  uint64_t region_count_max = UINT64_MAX;
  uint64_t total_bytes_max = UINT64_MAX;
};

// One context of one device (a ring, a protection domain). Threads: one at a time; for a ring and
// its like, only the thread that made it.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceKind& kind() const noexcept = 0;
  // Registers all `regions` and sets the key of each; on an error none stays registered. Errors:
  // the device's, with the cure.
  virtual Result<void> register_regions(std::span<Region> regions) = 0;
  // Undoes register_regions. Requires: `regions` as register_regions left them; nothing is in
  // flight.
  virtual void deregister_regions(std::span<const Region> regions) noexcept = 0;
};

// An existing or a planned segment.
struct SegmentSize {
  OwnerName owner;
  uint64_t bytes = 0;
};

// Checks that a device of `kind` takes segments of these sizes. Errors (kSystem): it does not. The
// error tells the number and size of the regions, each owner's share, and the device's limit.
Result<void> check_fit(const DeviceKind& kind, std::span<const SegmentSize> segments) noexcept;
// The same for those segments of a plan that devices register.
Result<void> check_fit(const DeviceKind& kind, const PoolPlan& plan);

// The keys of one device for the whole pool.
//
// The table has an entry for each granule of the pool's addresses. A granule has 1 GiB, since each
// segment begins at a multiple of 1 GiB; if the device's regions are smaller, it has a smaller
// power of two. A region is as long as the device allows, in whole granules; only the last region
// of a segment may end within a granule. Each granule's entry has the key and the end of its
// region.
//
// Invariants, which is_valid() looks at, when the table is made and before it is destroyed: 1. The
// granules of a region, and no others, have its key and its end. 2. No region has kNoKey. 3.
// Without a device there is no key.
class KeyTable {
 public:
  KeyTable() noexcept = default;
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;
  ~KeyTable() { destroy(); }

  // Registers every segment of `pool` that `device` takes: those for devices, and of these the
  // read-only ones only with takes_read_only. `device` lives until destroy().
  // Requires: the pool is reserved, not sealed; called once. Errors: check_fit's, then the
  // device's; the table then has no keys. If the device holds its pages, the pool's pages cannot be
  // moved any more.
  Result<void> create(PinnedPool& pool, Device& device);

  // Deregisters everything: from here on the table has no keys. Does nothing without create().
  // Requires: no operation that uses a key is in flight; nobody calls key(). Threads: one that the
  // device allows (for a ring, the one that made it).
  void destroy() noexcept;

  // The key for [pointer, pointer + bytes), or kNoKey for memory outside the pool. Threads: any.
  // Cost: a subtraction, a shift, two comparisons, one load; no call.
  KeyedRange key(const void* pointer, uint64_t bytes) const noexcept {
    BP_DCHECK(span_bytes_ == 0 || device_ != nullptr);
    const uint64_t offset = reinterpret_cast<uintptr_t>(pointer) - kPoolBase;
    if (offset >= span_bytes_) return {};
    const Entry& entry = entries_[offset >> granule_bytes_log2_];
    if (offset >= entry.end) return {};
    BP_DCHECK(entry.key != kNoKey && entry.end <= span_bytes_);
    return {entry.key, std::min(bytes, entry.end - offset)};
  }

  // Whether the invariants hold. Cost: a look at each granule. Threads: as destroy().
  bool is_valid() const noexcept;

 private:
  struct Entry {
    uint64_t end = 0;  // end of the region, relative to kPoolBase; 0: this granule has no region
    Key key = kNoKey;
  };

  uint64_t span_bytes_ = 0;  // size of the entries' range, from kPoolBase on; 0: no keys
  unsigned granule_bytes_log2_ = 0;
  std::vector<Entry> entries_;
  std::vector<Region> regions_;
  Device* device_ = nullptr;
};

struct RegistrationCounts {
  uint64_t total = 0;       // regions registered by this process, all devices
  uint64_t after_seal = 0;  // those made after the process's pool was sealed: a defect if not 0
};
// Threads: any.
RegistrationCounts registration_counts() noexcept;
// Counts registrations that a device makes of `pool` outside the table. Threads: any.
void count_registrations(const PinnedPool& pool, uint64_t count) noexcept;

}  // namespace bedplate
