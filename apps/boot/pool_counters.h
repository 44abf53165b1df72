// The counters of the pool and the heap. The keeper updates the gauges that are not written as they
// change: how much each owner has taken, and how much is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "alloc/heap_owner.h"
#include "alloc/heap_walk.h"
#include "apps/boot/appliance_plan.h"
#include "apps/counters/counters_file.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/pool_map.h"
#include "platform/counter_table.h"

namespace bedplate {

struct PoolCounters {
  Counter total_bytes;
  Counter is_sealed;
  Counter is_enforced_by_kernel;
  Counter registrations;
  Counter registrations_after_seal;
  Counter allocations_refused;
  Counter allocations_checked;  // debug builds: pointers seen to lie in the pool
  Counter bad_pointers_refused;
  Counter support_level;  // the bits of SupportLevel
};

// A way back: a means by which memory could leave the pool (pinned_pool/no_way_back.h).
struct WayBackCounters {
  Counter state;  // WayBackState
};

// A segment in the terms in which the audit compares it with the kernel's maps: PoolMapSegment.
struct SegmentCounters {
  Counter bytes;
  Counter page_bytes;
  Counter node;  // kNoValue: any
  Counter address;
  Counter device;
  Counter inode;
  Counter is_locked;
  Counter is_writable;
  Counter has_write_seal;
};

struct OwnerCounters {
  Counter bytes;
  Counter used_bytes;  // kNoValue unless the heap of this process fills the owner's memory
};

struct HeapCounters {
  Counter bytes;
  Counter used_peak_bytes;
  Counter free_bytes;
  Counter largest_free_bytes;
  SharedText largest_owner;  // the owner that holds most of it
};

struct HeapOwnerCounters {
  Counter used_bytes;
  Counter used_peak_bytes;
  Counter limit_bytes;  // kNoValue: no limit
  Counter refused;
};
static_assert(kNoLimit == kNoValue);

// A size class of the heap (alloc/heap_walk.h).
struct HeapClassCounters {
  Counter used_bytes;
  Counter free_bytes;
};

void describe(CounterTable& table, PoolCounters& counters);
void describe(CounterTable& table, WayBackCounters& counters);
void describe(CounterTable& table, SegmentCounters& counters);
void describe(CounterTable& table, OwnerCounters& counters);
void describe(CounterTable& table, HeapCounters& counters);
void describe(CounterTable& table, HeapOwnerCounters& counters);
void describe(CounterTable& table, HeapClassCounters& counters);

class PoolCountersKeeper {
 public:
  // Looks up the sets of counters. Requires: `file` was made for `plan`, and outlives this. Call it
  // before the seal: it allocates.
  void create(CountersFile& file, const AppliancePlan& plan);

  // Sets the memory of the first owners, which the heap fills: boot, the reserve, the heap, and the
  // parts of it that are kept for owners. Requires: `parts` are in the order of the plan.
  void set_heap_parts(std::vector<std::span<const std::byte>> parts) noexcept;
  // Sets the counters that no longer change.
  void pool_sealed(const PinnedPool& pool, const PoolMap& map, uint32_t support_level) noexcept;

  // Updates the gauges that are not written as they change. Threads: one. Cost: a walk over the
  // heap.
  void refresh() noexcept;

 private:
  struct Owner {
    OwnerCounters* counters;
    uint64_t bytes;
  };
  struct HeapClass {
    uint64_t block_bytes;
    HeapClassCounters* counters;
  };

  void refresh_heap_owners() noexcept;
  void refresh_heap_classes() noexcept;
  HeapClassCounters* class_of(uint64_t block_bytes) noexcept;

  CountersFile* file_ = nullptr;
  PoolCounters* pool_ = nullptr;
  HeapCounters* heap_ = nullptr;
  std::vector<SegmentCounters*> segments_;
  std::vector<WayBackCounters*> ways_back_;
  std::vector<Owner> owners_;
  HeapOwnerCounters* heap_owners_[kHeapOwnerCountMax] = {};
  HeapClass classes_[kHeapClassCountMax] = {};
  size_t class_count_ = 0;
  std::vector<std::span<const std::byte>> heap_parts_;
  bool has_accounts_ = false;  // allocations are charged to owners
};

}  // namespace bedplate
