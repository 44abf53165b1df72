#include "alloc/heap_owner.h"

#include <utility>

#include "alloc/thread_heaps.h"
#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/log.h"

namespace bedplate {
namespace {

struct alignas(kCacheLineBytes) Account {
  std::atomic<uint64_t> used_bytes{0};  // held, and charged but not settled
  std::atomic<uint64_t> held_bytes{0};
  std::atomic<uint64_t> peak_bytes{0};  // of held_bytes
  std::atomic<uint64_t> limit_bytes{kNoLimit};
  std::atomic<uint64_t> refused_count{0};
  OwnerName name;
};

// Static data: it is used before any constructor runs.
Account accounts[kHeapOwnerCountMax];
// All heap memory but the boot owner's.
alignas(kCacheLineBytes) std::atomic<uint64_t> all_held_bytes{0};
std::atomic<uint64_t> all_peak_bytes{0};
std::atomic<uint32_t> named_count{0};  // besides the three constant owners
std::atomic_flag is_naming;

constexpr uint32_t kFixedCount = 3;
thread_local HeapOwner refused_owner;
thread_local bool is_refused = false;

void raise(std::atomic<uint64_t>& peak, uint64_t bytes) noexcept {
  uint64_t seen = peak.load(std::memory_order_relaxed);
  while (bytes > seen && !peak.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

void hold(std::atomic<uint64_t>& held, std::atomic<uint64_t>& peak, uint64_t bytes) noexcept {
  raise(peak, held.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

OwnerName name_of(HeapOwner owner) noexcept {
  if (owner.index == kUnnamedOwner.index) return "heap";
  if (owner.index == kBootOwner.index) return "boot";
  if (owner.index == kRuntimeOwner.index) return "heap:runtime";
  return accounts[owner.index].name;
}

}  // namespace

constinit thread_local HeapOwner current_owner;

uint32_t heap_owner_count() noexcept {
  return kFixedCount + named_count.load(std::memory_order_acquire);
}

bool find_heap_owner(const OwnerName& name, HeapOwner* owner) noexcept {
  for (uint32_t i = 0; i < heap_owner_count(); ++i) {
    if (!(name_of({i}) == name)) continue;
    *owner = {i};
    return true;
  }
  return false;
}

void hold_owner_names() noexcept {
  while (is_naming.test_and_set(std::memory_order_acquire)) {
  }
}

void release_owner_names() noexcept { is_naming.clear(std::memory_order_release); }

Result<HeapOwner> heap_owner(const OwnerName& name) noexcept {
  hold_owner_names();
  HeapOwner owner;
  const bool is_known = find_heap_owner(name, &owner);
  const uint32_t count = heap_owner_count();
  if (!is_known && count < kHeapOwnerCountMax) {
    owner = {count};
    accounts[count].name = name;
    named_count.fetch_add(1, std::memory_order_release);
  }
  release_owner_names();
  if (is_known || count < kHeapOwnerCountMax) return owner;
  return error_while("naming %s as an owner of heap memory", name.text)
      .set_answer("there are %u owners already", count)
      .set_cure("let parts of the program share an owner");
}

void limit_heap_owner(HeapOwner owner, uint64_t bytes) noexcept {
  BP_ASSERT(owner.index < heap_owner_count());
  accounts[owner.index].limit_bytes.store(bytes, std::memory_order_relaxed);
}

HeapOwner enter_heap_owner(HeapOwner owner) noexcept {
  BP_ASSERT(owner.index < heap_owner_count() && owner.index != kBootOwner.index);
  const HeapOwner before = current_owner;
  if (!choose_heap_of_owner(owner.index)) {
    log_error(error_while("allocating for %s", name_of(owner).text)
                  .set_answer("there is no memory for a heap of its own in this thread")
                  .set_cure("it is charged to %s; see allocations_refused", name_of(before).text));
    return before;
  }
  current_owner = owner;
  return before;
}

HeapOwnerUse heap_owner_use(HeapOwner owner) noexcept {
  BP_ASSERT(owner.index < heap_owner_count());
  const Account& account = accounts[owner.index];
  return {name_of(owner), account.limit_bytes.load(std::memory_order_relaxed),
          account.used_bytes.load(std::memory_order_relaxed),
          account.peak_bytes.load(std::memory_order_relaxed),
          account.refused_count.load(std::memory_order_relaxed)};
}

uint64_t heap_peak_bytes() noexcept { return all_peak_bytes.load(std::memory_order_relaxed); }

bool charge_heap_owner(HeapOwner owner, uint64_t bytes) noexcept {
  Account& account = accounts[owner.index];
  const uint64_t used = account.used_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  is_refused = used > account.limit_bytes.load(std::memory_order_relaxed);
  if (!is_refused) return true;
  refused_owner = owner;
  account.used_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

uint64_t heap_owner_room_bytes(HeapOwner owner) noexcept {
  const Account& account = accounts[owner.index];
  const uint64_t limit = account.limit_bytes.load(std::memory_order_relaxed);
  const uint64_t used = account.used_bytes.load(std::memory_order_relaxed);
  return limit > used ? limit - used : 0;
}

void cancel_heap_charge(HeapOwner owner, uint64_t bytes) noexcept {
  accounts[owner.index].used_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

void credit_heap_owner(HeapOwner owner, uint64_t bytes) noexcept {
  Account& account = accounts[owner.index];
  account.used_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  account.held_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  if (owner.index != kBootOwner.index) {
    all_held_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  }
}

void settle_heap_charge(HeapOwner owner, uint64_t expected_bytes, uint64_t bytes) noexcept {
  Account& account = accounts[owner.index];
  if (bytes != expected_bytes) {
    account.used_bytes.fetch_add(bytes - expected_bytes, std::memory_order_relaxed);
  }
  hold(account.held_bytes, account.peak_bytes, bytes);
  if (owner.index != kBootOwner.index) hold(all_held_bytes, all_peak_bytes, bytes);
}

bool was_refused_by_limit(HeapOwner* owner) noexcept {
  *owner = refused_owner;
  return std::exchange(is_refused, false);
}

void count_refusal(HeapOwner owner) noexcept {
  accounts[owner.index].refused_count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace bedplate
