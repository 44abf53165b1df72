// Owners of heap memory: each has a name, an account of what it holds, and perhaps a limit.
//
// A thread allocates for one owner at a time. Each owner has a heap of its own in each thread, so
// malloc and free cost what they always do; it is charged the pages that mimalloc cuts into blocks
// (64 to 256 KiB, 512 KiB to 2 MiB, or one large block), when they are taken and when they are
// given back. So an owner's figure is above what it asked for by at most such a page for each size
// class and thread, and by what lies free between its blocks. A page stays with the owner that took
// it until its last block is freed, by any thread.
//
// In a forked child and under a sanitizer entering an owner does nothing, and nothing is charged.
// If malloc is not the pool's (support_level.h), its blocks are charged to nobody.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pinned_pool/owner_name.h"
#include "platform/result.h"

namespace bedplate {

inline constexpr uint32_t kHeapOwnerCountMax = 32;  // with the three below
inline constexpr uint64_t kNoLimit = ~uint64_t{0};

// Valid as long as the process: an owner never goes.
struct HeapOwner {
  uint32_t index = 0;
};
// The owner of blocks that are allocated in nobody's name.
inline constexpr HeapOwner kUnnamedOwner{0};
// The same before there is a heap segment. No thread can enter it.
inline constexpr HeapOwner kBootOwner{1};
// The runtime itself: only it may use the runtime's reserve (confined_heap.h).
inline constexpr HeapOwner kRuntimeOwner{2};

// The owner of this name ("heap:cache"), which is new if nobody asked for it before; it has no
// limit yet. Errors (kSystem): there are kHeapOwnerCountMax already. Threads: any.
Result<HeapOwner> heap_owner(const OwnerName& name) noexcept;
// Around a fork(): nobody is in the midst of it.
void hold_owner_names() noexcept;
void release_owner_names() noexcept;

// From now on `owner` may hold at most `bytes`: beyond, its malloc returns NULL with ENOMEM; other
// owners are not affected. It may hold more already. kNoLimit: no limit any more. Requires: `owner`
// is one of heap_owner()'s, or one of the three. Threads: any.
void limit_heap_owner(HeapOwner owner, uint64_t bytes) noexcept;

// From now on the calling thread allocates for `owner`. Returns the owner of before. When there is
// no memory for the thread's heap of that owner, a message says so and it stays as it was.
// Requires: as limit_heap_owner(); not kBootOwner. Threads: any, each for itself.
// Cost: a few loads; the first time in a thread some kilobytes of the heap.
HeapOwner enter_heap_owner(HeapOwner owner) noexcept;

// Enters `owner` for as long as it lives, and the owner before it again at its end.
// Threads: made and destroyed on the same one.
class HeapOwnerScope {
 public:
  explicit HeapOwnerScope(HeapOwner owner) noexcept : before_(enter_heap_owner(owner)) {}
  ~HeapOwnerScope() { enter_heap_owner(before_); }
  HeapOwnerScope(const HeapOwnerScope&) = delete;
  HeapOwnerScope& operator=(const HeapOwnerScope&) = delete;

 private:
  HeapOwner before_;
};

// The owner that the calling thread allocates for.
extern constinit thread_local HeapOwner current_owner;
inline HeapOwner current_heap_owner() noexcept { return current_owner; }

// For code that calls back: the owner that was current when the call was asked for is current when
// it is made, and stays so until the next call. A call for the unnamed owner changes nothing.
// Threads: any, each for itself. Cost: two comparisons; if the owner changes, that of
// enter_heap_owner.
inline void follow_heap_owner(HeapOwner asker) noexcept {
  if (asker.index != kUnnamedOwner.index && asker.index != current_owner.index) {
    enter_heap_owner(asker);
  }
}

struct HeapOwnerUse {
  OwnerName name;
  uint64_t limit_bytes = kNoLimit;
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;     // the most that it held at once
  uint64_t refused_count = 0;  // requests refused because of the limit
};

// The number of owners, and the account of `owner`: a snapshot. Threads: any.
uint32_t heap_owner_count() noexcept;
HeapOwnerUse heap_owner_use(HeapOwner owner) noexcept;
// The most that all owners but boot held of the heap together. Threads: any.
uint64_t heap_peak_bytes() noexcept;
// Returns false when nobody has this name.
bool find_heap_owner(const OwnerName& name, HeapOwner* owner) noexcept;

// ---- For the heap alone ----

// Charges `bytes` to the owner, or says that its limit forbids it. Each charge is settled, or
// cancelled.
bool charge_heap_owner(HeapOwner owner, uint64_t bytes) noexcept;
// The bytes that the owner's limit still allows.
uint64_t heap_owner_room_bytes(HeapOwner owner) noexcept;
// Cancels a charge: there was no memory for it.
void cancel_heap_charge(HeapOwner owner, uint64_t bytes) noexcept;
// The owner holds `bytes` from now on, for what was charged in advance as `expected_bytes`.
void settle_heap_charge(HeapOwner owner, uint64_t expected_bytes, uint64_t bytes) noexcept;
// The owner holds `bytes` less. Threads: any.
void credit_heap_owner(HeapOwner owner, uint64_t bytes) noexcept;
// Whether the calling thread's last charge was refused, and its owner. True once for each refusal.
bool was_refused_by_limit(HeapOwner* owner) noexcept;
// Counts a request of `owner` that ended with NULL because of its limit.
void count_refusal(HeapOwner owner) noexcept;

}  // namespace bedplate
