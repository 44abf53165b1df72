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
#include "platform/log_limit.h"

namespace bedplate {
namespace {

constexpr uint32_t kNamedOwners = 5;

std::atomic<uint64_t> refused_count{0};
std::atomic<bool> is_appliance{false};
OncePerSecond heap_messages;
OncePerSecond limit_messages;
OncePerSecond misfit_messages;

struct Holding {
  OwnerName owner;
  uint64_t bytes = 0;
};

// The owners of pool memory: the heap's owners, and the owners of other segments.
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
    // The boot owner is left out: segment 0 and added segments are in the list already.
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

// The error of "allocating 9 MiB at a multiple of 4 MiB", with the owner's name.
Error error_of(const HeapRefusal& refusal, const char* owner = nullptr) noexcept {
  Error error;
  const bool is_aligned = refusal.alignment > alignof(max_align_t);
  error.set_doing("allocating %s%s%s%s%s", format_bytes(refusal.bytes).text,
                  is_aligned ? " at a multiple of " : "",
                  is_aligned ? format_bytes(refusal.alignment).text : "",
                  owner != nullptr ? " for " : "", owner != nullptr ? owner : "");
  return error;
}

void tell_limit(const HeapRefusal& refusal, HeapOwner owner) noexcept {
  const HeapOwnerUse use = heap_owner_use(owner);
  Error error = error_of(refusal, use.name.text);
  error.set_answer("it uses %s of its limit of %s", format_bytes(use.used_bytes).text,
                   format_bytes(use.limit_bytes).text);
  log_error(error.set_cure("free memory, or raise bytes in its [[limit]]"));
}

// Whether there is a heap segment, not segment 0 alone.
bool has_heap() noexcept { return process_pool().segment_count() > 1; }

// The cure: the setting that gives this kind of program more heap. Static text.
const char* cure_for_small_heap() noexcept {
  if (interception_decision().backing == HeapBacking::kOrdinary) {
    return "choose the pool: BEDPLATE_LEAVE_PINNED=yes";
  }
  if (is_appliance.load(std::memory_order_relaxed)) {
    // Without a heap segment, segment 0 is exhausted.
    return has_heap() ? "raise [pool] bytes"
                      : "set BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link time";
  }
  if (process_pool().is_sealed()) return "raise heap_bytes in its [[process]]";
  return "give the heap more: BEDPLATE_BOOT_BYTES, or bedplate_boot_bytes at link time, or "
         "bp_add_heap (C++: add_heap)";
}

// Reports that even an empty heap of this size could not serve the request.
void tell_misfit(const HeapRefusal& refusal) noexcept {
  Error error = error_of(refusal);
  if (refusal.cause == HeapRefusal::Cause::kAlignment) {
    error.set_answer("the heap supports alignments of at most %s",
                     format_bytes(kAlignmentBytesMax).text);
    log_error(error.set_cure("ask for a smaller one"));
    return;
  }
  const UnitText largest = format_bytes(heap_block_bytes_max());
  if (refusal.alignment == 0) {
    error.set_answer("even when empty, the heap has no block larger than %s", largest.text);
  } else {
    error.set_answer(
        "even when empty, the heap has no room for such a block; its largest block is %s",
        largest.text);
  }
  log_error(error.set_cure("ask for less, or %s", cure_for_small_heap()));
}

void tell_exhaustion(const HeapRefusal& refusal) noexcept {
  Error error = error_of(refusal);
  if (interception_decision().backing == HeapBacking::kOrdinary) {
    error.set_answer("the address space of the ordinary heap is exhausted");
    log_error(error.set_cure("free memory, or %s", cure_for_small_heap()));
    return;
  }
  char owners[256];
  name_biggest_owners(owners, sizeof owners);
  error.set_answer("%s is exhausted; the pool's biggest owners: %s",
                   has_heap() ? "the heap" : "boot", owners);
  // An appliance that boots has no memory that it could free.
  const bool is_booting = is_appliance.load(std::memory_order_relaxed) && !has_heap();
  log_error(error.set_cure("%s%s", is_booting ? "" : "free memory, or ", cure_for_small_heap()));
}

}  // namespace

void handle_exhaustion(const HeapRefusal& refusal) {
  refused_count.fetch_add(1, std::memory_order_relaxed);
  if (refusal.cause != HeapRefusal::Cause::kExhausted) {
    if (misfit_messages.try_pass()) tell_misfit(refusal);
  } else if (HeapOwner owner; was_refused_by_limit(&owner)) {
    count_refusal(owner);
    if (limit_messages.try_pass()) tell_limit(refusal, owner);
  } else if (heap_messages.try_pass()) {
    tell_exhaustion(refusal);
  }
}

void expect_appliance() noexcept { is_appliance.store(true, std::memory_order_relaxed); }

bool is_appliance_expected() noexcept { return is_appliance.load(std::memory_order_relaxed); }

uint64_t exhaustion_count() noexcept { return refused_count.load(std::memory_order_relaxed); }

uint64_t heap_used_bytes(std::span<const std::byte> memory) noexcept {
  uint64_t used_bytes = 0;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    const HeapArenaUse use = heap_arena_use(i);
    const auto offset = static_cast<uint64_t>(use.address - memory.data());
    if (offset < memory.size()) used_bytes += use.used_bytes;
  }
  return used_bytes;
}

}  // namespace bedplate
