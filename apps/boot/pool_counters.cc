#include "apps/boot/pool_counters.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "alloc/bad_pointer.h"
#include "alloc/confined_heap.h"
#include "alloc/exhaustion.h"
#include "alloc/interception.h"
#include "alloc/support_level.h"
#include "pinned_pool/no_way_back.h"
#include "platform/units.h"
#include "transport/registration.h"

namespace bedplate {

void describe(CounterTable& table, PoolCounters& c) {
  table.gauge("total_bytes", c.total_bytes, "bytes", "The memory of the pool.");
  table.boolean("sealed", c.is_sealed, "The pool is sealed: no mapping of it changes any more.");
  table.boolean("enforced_by_kernel", c.is_enforced_by_kernel,
                "The kernel protects the mappings from changes (mseal).");
  table.counter("registrations", c.registrations, "registrations",
                "Registrations of pool memory with devices and rings.");
  table
      .counter("registrations_after_seal", c.registrations_after_seal, "registrations",
               "Registrations after the seal; any other number than 0 is a defect.")
      .alert_as_it_grows(
          "memory was registered {registrations_after_seal} times after the seal: this is a "
          "defect; report it with the log and the configuration");
  table
      .counter("allocations_refused", c.allocations_refused, "requests",
               "Refused requests for heap memory.")
      .refusals_of("pool.bytes")
      .alert_as_it_grows(
          "{allocations_refused} requests for heap memory were refused so far: the log says "
          "which owners use the heap; a larger [pool] bytes gives more");
  table.counter("allocations_checked", c.allocations_checked, "requests",
                "Debug builds: blocks that were checked to lie in the pool.");
  table
      .counter("bad_pointers_refused", c.bad_pointers_refused, "calls",
               "Calls of free and the like with a pointer to no block.")
      .alert_as_it_grows(
          "free() was called with {bad_pointers_refused} pointers to no block so far: the log "
          "names the callers; correct that service or library");
  table.flags("support_level", c.support_level, "FREE|CHUNK|MUNMAP",
              "The properties of malloc in this process that boot has verified.");
}

void describe(CounterTable& table, WayBackCounters& c) {
  table.state("state", c.state, "stopped|refused in libc only|open",
              "The state of this method of taking memory from the pool.");
}

void describe(CounterTable& table, SegmentCounters& c) {
  table.gauge("bytes", c.bytes, "bytes", "The size of the segment.");
  table.gauge("page_bytes", c.page_bytes, "bytes", "The size of its pages.");
  table.gauge("node", c.node, "node", "The NUMA node that was requested for it; none: any.");
  table.gauge("address", c.address, "address", "The address of its first byte.");
  table.gauge("device", c.device, "device", "The memfd's st_dev.");
  table.gauge("inode", c.inode, "inode", "The memfd's st_ino.");
  table.boolean("locked", c.is_locked, "It is locked by mlock; hugepages need no lock.");
  table.boolean("writable", c.is_writable, "The appliance may write to it.");
  table.boolean("write_seal", c.has_write_seal,
                "Nobody can map it writable any more. Without this, its writers can punch holes.");
}

void describe(CounterTable& table, OwnerCounters& c) {
  table.gauge("bytes", c.bytes, "bytes", "Memory that the owner has planned.");
  table.gauge(
      "used_bytes", c.used_bytes, "bytes",
      "The used part of it; none: the owner uses it as a whole, or only its process knows.");
}

void describe(CounterTable& table, HeapCounters& c) {
  table.gauge("bytes", c.bytes, "bytes", "Memory for all owners, without the reserve.");
  table
      .gauge("used_peak_bytes", c.used_peak_bytes, "bytes",
             "The peak of memory charged to all owners; none: another malloc is in use.")
      .peak_of("pool.bytes", "Requests for heap memory are refused, large ones first.", "bytes");
  table.gauge("free_bytes", c.free_bytes, "bytes", "Free memory.")
      .alert_below(10, "bytes",
                   "it is nearly exhausted: {free_bytes} of {bytes} are free, and {largest_owner} "
                   "has the most");
  table.gauge("largest_free_bytes", c.largest_free_bytes, "bytes",
              "The longest run of free units of 4 MiB; smaller requests fit into used units, too.");
  table.text("largest_owner", c.largest_owner,
             "The owner with the most heap memory, and how much that is.");
}

void describe(CounterTable& table, HeapOwnerCounters& c) {
  table.gauge("used_bytes", c.used_bytes, "bytes", "Heap memory charged to the owner.");
  table
      .gauge("used_peak_bytes", c.used_peak_bytes, "bytes",
             "The peak of memory charged to it; none: another malloc is in use.")
      .peak_of("limit.bytes", "Its requests for heap memory are refused.");
  table.gauge("limit_bytes", c.limit_bytes, "bytes", "The most that it may have; none: no limit.");
  table.counter("refused", c.refused, "requests", "Requests refused because of the limit.")
      .refusals_of("limit.bytes")
      .alert_as_it_grows("its limit of {limit_bytes} has refused {refused} requests for memory");
}

void describe(CounterTable& table, HeapClassCounters& c) {
  table.gauge("used_bytes", c.used_bytes, "bytes", "Memory in used blocks of this size.");
  table.gauge("free_bytes", c.free_bytes, "bytes", "Memory in free blocks of this size.");
}

void PoolCountersKeeper::create(CountersFile& file, const AppliancePlan& plan) {
  file_ = &file;
  pool_ = &file.runtime<PoolCounters>("pool");
  heap_ = &file.runtime<HeapCounters>("heap");
  for (const WayBack& way_back : all_ways_back()) {
    ways_back_.push_back(&file.runtime<WayBackCounters>("way_back", way_back.name));
  }
  for (const SegmentPlan& segment : plan.pool.segments) {
    segments_.push_back(&file.runtime<SegmentCounters>("segment", segment.owner.view()));
    const auto add = [&](const OwnerName& owner, uint64_t bytes) {
      owners_.push_back({&file.runtime<OwnerCounters>("owner", owner.view()), bytes});
    };
    if (segment.carves.empty()) add(segment.owner, segment.bytes);
    for (const CarvePlan& carve : segment.carves) add(carve.owner, carve.bytes);
  }
}

void PoolCountersKeeper::set_heap_parts(std::vector<std::span<const std::byte>> parts) noexcept {
  BP_ASSERT(parts.size() <= owners_.size());
  heap_parts_ = std::move(parts);
}

void PoolCountersKeeper::pool_sealed(const PinnedPool& pool, const PoolMap& map,
                                     uint32_t support_level) noexcept {
  pool_->total_bytes.set(pool.total_bytes());
  pool_->is_sealed.set(map.is_sealed);
  pool_->is_enforced_by_kernel.set((pool.stoppers() & kMappingSealStops) != 0);
  pool_->support_level.set(support_level);
  has_accounts_ = includes(static_cast<SupportLevel>(support_level), SupportLevel::kFree);
  for (size_t i = 0; i < ways_back_.size(); ++i) {
    ways_back_[i]->state.set(static_cast<uint64_t>(state_of(all_ways_back()[i], pool.stoppers())));
  }
  for (uint32_t i = 0; i < std::min<size_t>(map.segment_count, segments_.size()); ++i) {
    const PoolMapSegment& segment = map.segments[i];
    SegmentCounters& counters = *segments_[i];
    counters.bytes.set(segment.bytes);
    counters.page_bytes.set(segment.page_bytes);
    counters.node.set(segment.node == kAnyNode ? kNoValue : static_cast<uint64_t>(segment.node));
    counters.address.set(segment.address);
    counters.device.set(segment.device);
    counters.inode.set(segment.inode);
    counters.is_locked.set(segment.is_locked);
    counters.is_writable.set(segment.is_writable);
    counters.has_write_seal.set(segment.has_write_seal);
  }
  for (const Owner& owner : owners_) {
    owner.counters->bytes.set(owner.bytes);
    owner.counters->used_bytes.set(kNoValue);  // the heap's is set by refresh()
  }
}

void PoolCountersKeeper::refresh() noexcept {
  const RegistrationCounts registrations = registration_counts();
  pool_->registrations.set(registrations.total);
  pool_->registrations_after_seal.set(registrations.after_seal);
  pool_->allocations_refused.set(exhaustion_count());
  pool_->bad_pointers_refused.set(bad_pointer_count());
  pool_->allocations_checked.set(checked_pointer_count());
  for (uint32_t i = 0; i < heap_parts_.size(); ++i) {
    owners_[i].counters->used_bytes.set(heap_used_bytes(heap_parts_[i]));
  }
  refresh_heap_owners();
  refresh_heap_classes();
}

void PoolCountersKeeper::refresh_heap_owners() noexcept {
  uint64_t most_bytes = 0;
  uint32_t largest = 0;
  for (uint32_t i = 0; i < heap_owner_count(); ++i) {
    const HeapOwnerUse use = heap_owner_use({i});
    if (heap_owners_[i] == nullptr) {
      heap_owners_[i] = file_->take_spare<HeapOwnerCounters>("heap_owner", use.name.view());
    }
    heap_owners_[i]->limit_bytes.set(use.limit_bytes);
    heap_owners_[i]->used_bytes.set(use.used_bytes);
    heap_owners_[i]->used_peak_bytes.set(has_accounts_ ? use.peak_bytes : kNoValue);
    heap_owners_[i]->refused.set(use.refused_count);
    if (use.used_bytes <= most_bytes) continue;
    most_bytes = use.used_bytes;
    largest = i;
  }
  if (most_bytes == 0) return;
  char text[sizeof(OwnerName) + sizeof(UnitText) + sizeof " ()"];
  std::snprintf(text, sizeof text, "%s (%s)", heap_owner_use({largest}).name.text,
                format_rounded_bytes(most_bytes).text);
  heap_->largest_owner.set(text);
}

// A size class keeps its counters even when it has no page left.
HeapClassCounters* PoolCountersKeeper::class_of(uint64_t block_bytes) noexcept {
  for (size_t i = 0; i < class_count_; ++i) {
    if (classes_[i].block_bytes == block_bytes) return classes_[i].counters;
  }
  if (class_count_ == kHeapClassCountMax) return nullptr;
  char name[24] = "large";  // block_bytes 0: large blocks, each of its own size
  if (block_bytes != 0) std::snprintf(name, sizeof name, "%" PRIu64, block_bytes);
  HeapClassCounters* counters = file_->take_spare<HeapClassCounters>("heap_class", name);
  classes_[class_count_++] = {block_bytes, counters};
  return counters;
}

void PoolCountersKeeper::refresh_heap_classes() noexcept {
  const HeapWalk walk = walk_heap();
  heap_->bytes.set(owners_[2].bytes);  // as in heap_parts_
  heap_->used_peak_bytes.set(has_accounts_ ? heap_peak_bytes() : kNoValue);
  heap_->free_bytes.set(walk.free_bytes);
  heap_->largest_free_bytes.set(walk.largest_free_bytes);
  HeapClassCounters* seen[kHeapClassCountMax] = {};
  for (size_t i = 0; i < walk.class_count; ++i) {
    seen[i] = class_of(walk.classes[i].block_bytes);
    if (seen[i] == nullptr) continue;
    seen[i]->used_bytes.set(walk.classes[i].used_bytes);
    seen[i]->free_bytes.set(walk.classes[i].free_bytes);
  }
  for (size_t i = 0; i < class_count_; ++i) {
    HeapClassCounters* counters = classes_[i].counters;
    if (std::find(seen, seen + walk.class_count, counters) != seen + walk.class_count) continue;
    counters->used_bytes.set(0);
    counters->free_bytes.set(0);
  }
}

}  // namespace bedplate
