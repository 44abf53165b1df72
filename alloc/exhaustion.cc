#include "alloc/exhaustion.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>

#include "alloc/added_heap.h"
#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "alloc/interception_decision.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr uint32_t kNamedOwners = 5;

std::atomic<uint64_t> refused_count{0};
std::atomic<bool> is_appliance{false};
OncePerSecond heap_messages;
OncePerSecond limit_messages;

struct Holding {
  OwnerName owner;
  uint64_t bytes = 0;
};

// The owners of the pool: those that the heap is used for, and the other segments.
uint32_t list_holdings(Holding* holdings) noexcept {
  const PinnedPool& pool = process_pool();
  uint32_t count = 0;
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    if (segment.owner == "heap" || segment.owner == kAddedHeapOwner) continue;
    holdings[count++] = {segment.owner, segment.bytes};
  }
  for (uint32_t i = 0; i < heap_owner_count(); ++i) {
    const HeapOwnerUse use = heap_owner_use({i});
    // Its segment is there already.
    if (i != kBootOwner.index && use.used_bytes > 0) holdings[count++] = {use.name, use.used_bytes};
  }
  return count;
}

// Writes "heap 160 MiB, volume:ram0 64 MiB" without allocating.
void name_biggest_owners(char* text, size_t text_bytes) noexcept {
  Holding holdings[kSegmentCountMax + kHeapOwnerCountMax];
  const uint32_t count = list_holdings(holdings);
  std::sort(holdings, holdings + count,
            [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < std::min(count, kNamedOwners) && used < text_bytes; ++i) {
    const int written = std::snprintf(text + used, text_bytes - used, "%s%s %s", i == 0 ? "" : ", ",
                                      holdings[i].owner.text, format_bytes(holdings[i].bytes).text);
    used += static_cast<size_t>(std::max(written, 0));
  }
}

void tell_limit(HeapOwner owner) noexcept {
  const HeapOwnerUse use = heap_owner_use(owner);
  Error error;
  error.set_doing("allocating memory for %s", use.name.text);
  error.set_answer("it has %s of its limit of %s", format_bytes(use.used_bytes).text,
                   format_bytes(use.limit_bytes).text);
  log_error(error.set_cure("free memory, or raise bytes in its [[limit]]"));
}

// The setting by which each kind of program gets more.
const char* cure_of_exhaustion() noexcept {
  const bool has_more = heap_arena_count() > 1;
  if (is_appliance.load(std::memory_order_relaxed)) {
    // Before the heap segment is there, segment 0 is what ran out.
    return has_more ? "free memory, or raise [pool] bytes"
                    : "set BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link time";
  }
  if (process_pool().is_sealed()) return "free memory, or raise heap_bytes in its [[process]]";
  return "free memory, or give the heap more: BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link "
         "time, or bp_add_heap (C++: add_heap)";
}

void tell_exhaustion() noexcept {
  Error error;
  error.set_doing("allocating memory");
  if (interception_decision().backing == HeapBacking::kOrdinary) {
    error.set_answer("the address space of the ordinary heap is exhausted");
    error.set_cure("free memory, or decide for the pool: BEDPLATE_LEAVE_PINNED=yes");
    log_error(error);
    return;
  }
  char owners[256];
  name_biggest_owners(owners, sizeof owners);
  error.set_answer("%s is exhausted; the pool's biggest owners: %s",
                   heap_arena_count() > 1 ? "the heap" : "boot", owners);
  log_error(error.set_cure("%s", cure_of_exhaustion()));
}

}  // namespace

void handle_exhaustion() {
  refused_count.fetch_add(1, std::memory_order_relaxed);
  if (HeapOwner owner; was_refused_by_limit(&owner)) {
    count_refusal(owner);
    if (limit_messages.try_pass()) tell_limit(owner);
  } else if (heap_messages.try_pass()) {
    tell_exhaustion();
  }
}

void expect_appliance() noexcept { is_appliance.store(true, std::memory_order_relaxed); }

bool is_appliance_expected() noexcept { return is_appliance.load(std::memory_order_relaxed); }

uint64_t exhaustion_count() noexcept { return refused_count.load(std::memory_order_relaxed); }

uint64_t heap_used_bytes(const void* address) noexcept {
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    const HeapArenaUse use = heap_arena_use(i);
    if (use.address == address) return use.used_bytes;
  }
  return 0;
}

}  // namespace bedplate
