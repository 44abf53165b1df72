#include "alloc/exhaustion.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>

#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "alloc/interception_decision.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr uint32_t kNamedOwners = 5;

std::atomic<uint64_t> refused_count{0};
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
    if (segment.owner == "heap") continue;
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

void tell_exhaustion() noexcept {
  Error error;
  error.set_doing("allocating memory");
  if (interception_decision().place == HeapPlace::kOrdinary) {
    error.set_answer("the address space of the ordinary heap is exhausted");
    error.set_cure("free memory, or decide for the pool: BEDPLATE_LEAVE_PINNED=yes");
    log_error(error);
    return;
  }
  // Before the heap segment is there, segment 0 is what ran out.
  const bool booted = heap_arena_count() > 1;
  char owners[256];
  name_biggest_owners(owners, sizeof owners);
  error.set_answer("%s is exhausted; the pool's biggest owners: %s", booted ? "the heap" : "boot",
                   owners);
  error.set_cure("%s", booted ? "free memory, or raise [pool] bytes"
                              : "set BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link time");
  log_error(error);
}

void on_exhaustion() {
  refused_count.fetch_add(1, std::memory_order_relaxed);
  if (HeapOwner owner; was_refused_by_limit(&owner)) {
    count_refusal(owner);
    if (limit_messages.try_pass()) tell_limit(owner);
  } else if (heap_messages.try_pass()) {
    tell_exhaustion();
  }
}

}  // namespace

void tell_exhaustion_once() {
  static constinit std::atomic<bool> is_told{false};
  if (is_told.exchange(true, std::memory_order_relaxed)) return;
  if (HeapOwner owner; was_refused_by_limit(&owner)) return tell_limit(owner);
  tell_exhaustion();
}

void report_exhaustion() noexcept { set_exhaustion_handler(&on_exhaustion); }

uint64_t exhaustion_count() noexcept { return refused_count.load(std::memory_order_relaxed); }

uint64_t heap_used_bytes(const void* address) noexcept {
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    const HeapArenaUse use = heap_arena_use(i);
    if (use.address == address) return use.used_bytes;
  }
  return 0;
}

}  // namespace bedplate
