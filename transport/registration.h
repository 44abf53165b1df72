// Registration: the table region x device that makes every pool pointer usable by every device.
//
// A device registers the whole pool once, before the seal; from then on its key for any pointer is
// arithmetic: which region, and is it inside. There is no lookup structure that can miss and no
// cache that can go stale. Memory that is not the pool's has no key (kNoKey).
// How many registrations were made is counted, and after the seal the count must not move.
//
// A kind of device is added by implementing Device; nothing here changes. It states its limits as
// numbers (DeviceKind); the code here cuts the pool accordingly, or refuses it.
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

// A device's key: it needs one beside an address. 64 bits, so that each kind finds room: io_uring's
// buffer index, the lkey of a verbs region with its rkey above it, what a bus or a GPU adds to an
// address.
using Key = uint64_t;
inline constexpr Key kNoKey = ~Key{0};

// One piece of a segment as a device registers it.
struct Region {
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  Key key = kNoKey;
};

struct KeyedRange {
  Key key = kNoKey;
  uint64_t bytes = 0;  // how many of the bytes asked for this key covers; the rest lies in the next
                       // region and has a key of its own
};

// Facts about a device that are known before anything is registered with it.
struct DeviceKind {
  const char* name = "";
  const char* instead = "";  // how to do without it: the end of a cure, or empty
  bool holds_pages = false;  // what it registered stays where it is (a long-term pin)
  // It also registers segments that are mapped read-only here, as a process that joined a pool has
  // them. If not, their pointers have no key.
  bool takes_read_only = false;
  uint64_t region_bytes_max = UINT64_MAX;
  uint64_t region_count_max = UINT64_MAX;
  uint64_t total_bytes_max = UINT64_MAX;
};

// One context of one device (a ring, a protection domain).
// Threads: one at a time; if a device says so (a ring), the one that made it.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceKind& kind() const noexcept = 0;
  // Registers all `regions` and sets the key of each; when it fails, none is left registered.
  // Errors: the device's, with the cure.
  virtual Result<void> register_regions(std::span<Region> regions) = 0;
  // Takes that back. Requires: `regions` as register_regions left them; nothing is in flight.
  virtual void deregister_regions(std::span<const Region> regions) noexcept = 0;
};

// A segment that exists, or one that is only planned.
struct SegmentSize {
  OwnerName owner;
  uint64_t bytes = 0;
};

// Checks that a device of `kind` takes segments of these sizes.
// Errors (kSystem): the sum (how many regions of what size, from which owners) and what the device
// takes.
Result<void> check_fit(const DeviceKind& kind, std::span<const SegmentSize> segments) noexcept;
// The same of the segments of a plan that are for devices.
Result<void> check_fit(const DeviceKind& kind, const PoolPlan& plan);

// The keys of one device for the whole pool.
//
// The table has an entry for each granule: 1 GiB of addresses, where every segment begins, or a
// smaller power of two for a device whose regions are smaller. A region is a whole number of
// granules but for its segment's last, and as long as the device takes it; its granules share its
// key and its end.
//
// Invariants, which is_valid() looks at, when the table is made and before it is destroyed: 1. the
// granules of a region, and no others, have its key and its end. 2. No region has kNoKey. 3.
// Without a device there is no key.
class KeyTable {
 public:
  KeyTable() noexcept = default;
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;
  ~KeyTable() { destroy(); }

  // Registers every segment of `pool` with `device`, which outlives the table or its destroy().
  // Requires: the pool is reserved, not sealed; called once.
  // Errors: check_fit's, then the device's; no key is handed out then.
  // If the device holds its pages, the pool's pages cannot be moved any more.
  Result<void> create(PinnedPool& pool, Device& device);

  // From here on there are no keys, and nothing is registered. Does nothing without create().
  // Requires: nothing that was given a key is in flight; nobody calls key().
  // Threads: a thread that the device allows (a ring: the one that made it).
  void destroy() noexcept;

  // The key for [pointer, pointer + bytes), or kNoKey for memory that is not the pool's.
  // Threads: any. Cost: a subtraction, a shift, two comparisons, one load; no call.
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
    uint64_t end = 0;  // of the region, from kPoolBase on; 0: none begins or goes on here
    Key key = kNoKey;
  };

  uint64_t span_bytes_ = 0;  // what the entries cover, from kPoolBase on; 0: no keys
  unsigned granule_bytes_log2_ = 0;
  std::vector<Entry> entries_;
  std::vector<Region> regions_;
  Device* device_ = nullptr;
};

struct RegistrationCounts {
  uint64_t total = 0;       // regions registered by this process, all devices
  uint64_t after_seal = 0;  // of these, after the process's pool was sealed: a defect if not 0
};
// Threads: any.
RegistrationCounts registration_counts() noexcept;
// For devices that register memory of `pool` beside the table. Threads: any.
void count_registrations(const PinnedPool& pool, uint64_t count) noexcept;

}  // namespace bedplate
