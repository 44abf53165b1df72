// Brings up to date the counters of the pool and the heap that nobody pushes: how much each owner
// has taken, and how much is free.
#pragma once

#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/runtime_counters.h"
#include "apps/counters/counters_file.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/pool_map.h"

namespace bedplate {

class PoolCountersKeeper {
 public:
  // Looks up its sets. Requires: `file` was made for `plan`, and outlives this. Before the seal: it
  // allocates.
  void create(CountersFile& file, const AppliancePlan& plan);

  // The memory of the first owners, which the heap fills: boot, the reserve, the heap,
  // and what is kept of it.
  void set_heap_parts(std::vector<std::span<const std::byte>> parts) noexcept;
  // Sets the counters that do not change any more.
  void pool_sealed(const PinnedPool& pool, const PoolMap& map, uint32_t support_level) noexcept;

  // Threads: one. Cost: that of a walk over the heap.
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
  std::vector<WayCounters*> ways_;
  std::vector<Owner> owners_;
  HeapOwnerCounters* heap_owners_[kHeapOwnerCountMax] = {};
  HeapClass classes_[kHeapClassCountMax] = {};
  size_t class_count_ = 0;
  std::vector<std::span<const std::byte>> heap_parts_;
  bool has_accounts_ = false;  // allocations are charged to owners
};

}  // namespace bedplate
