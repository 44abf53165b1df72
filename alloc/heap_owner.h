// Owners of heap memory: each has a name, an account of its bytes, and perhaps a limit.
//
// A thread allocates for one owner at a time. Each owner has a heap of its own in each thread, so
// malloc and free cost the same as without owners. The account counts pages: mimalloc cuts a page
// into blocks (64 to 256 KiB, 512 KiB to 2 MiB, or one large block), and the account changes when a
// page is taken and when it is given back. So an owner's figure exceeds its requests by at most one
// such page for each size class and thread, plus the free space between its blocks. A page stays
// with its owner until its last block is freed, by any thread.
//
// In a forked child beside a shared heap, and under a sanitizer, entering an owner changes only
// current_heap_owner(), and nothing is charged. If another allocator serves malloc
// (support_level.h), malloc's blocks are charged to no owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pinned_pool/owner_name.h"
#include "platform/result.h"

namespace bedplate {

inline constexpr uint32_t kHeapOwnerCountMax = 32;  // including the three below
inline constexpr uint64_t kNoLimit = ~uint64_t{0};

// Valid until the process ends: owners are never removed.
struct HeapOwner {
  uint32_t index = 0;
};
// The owner of blocks allocated without an owner's name.
inline constexpr HeapOwner kUnnamedOwner{0};
// The owner of such blocks until retire_boot_heap() (confined_heap.h): to the end in a program that
// neither runs nor joins an appliance. No thread can enter it.
inline constexpr HeapOwner kBootOwner{1};
// The runtime itself: only this owner may use the runtime's reserve (confined_heap.h).
inline constexpr HeapOwner kRuntimeOwner{2};

// The owner of this name ("heap:cache"). The first request for a name creates its owner, without a
// limit. Errors (kSystem): there are kHeapOwnerCountMax owners already. Threads: any.
Result<HeapOwner> heap_owner(const OwnerName& name) noexcept;
// Held around a fork(), so that no other thread is inside heap_owner().
void hold_owner_names() noexcept;
void release_owner_names() noexcept;

// From now on `owner` may hold at most `bytes`: beyond that its malloc returns NULL with ENOMEM;
// other owners are not affected. The owner may hold more already, and keeps it. kNoLimit removes
// the limit. Requires: heap_owner() returned `owner`, or it is one of the three constants.
// Threads: any.
void limit_heap_owner(HeapOwner owner, uint64_t bytes) noexcept;

// From now on the calling thread allocates for `owner`. Returns the previous owner. If there is no
// memory for the thread's heap of that owner, logs a message and changes nothing. Requires: as
// limit_heap_owner(); not kBootOwner. Threads: any, each for itself.
// Cost: a few loads; the first time in a thread some kilobytes of the heap.
HeapOwner enter_heap_owner(HeapOwner owner) noexcept;

// Enters `owner` during the life of this object, then the previous owner again.
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

// For code that makes callbacks: enters `asker`, the owner that was current when the callback was
// requested. That owner stays current until the next callback. The unnamed owner changes nothing.
// Threads: any, each for itself. Cost: two comparisons; if the owner changes, also
// enter_heap_owner().
inline void follow_heap_owner(HeapOwner asker) noexcept {
  if (asker.index != kUnnamedOwner.index && asker.index != current_owner.index) {
    enter_heap_owner(asker);
  }
}

struct HeapOwnerUse {
  OwnerName name;
  uint64_t limit_bytes = kNoLimit;
  uint64_t used_bytes = 0;     // includes charges that are not yet settled
  uint64_t peak_bytes = 0;     // the most that the owner held at once
  uint64_t refused_count = 0;  // requests that the limit refused
};

// The number of owners, and the account of `owner`: a snapshot. Threads: any.
uint32_t heap_owner_count() noexcept;
HeapOwnerUse heap_owner_use(HeapOwner owner) noexcept;
// The most heap memory that all owners but boot held together. Threads: any.
uint64_t heap_peak_bytes() noexcept;
// Finds the owner of this name. Returns false if there is none, and leaves `*owner` as it was.
bool find_heap_owner(const OwnerName& name, HeapOwner* owner) noexcept;

// ---- Used by the heap alone ----

// Charges `bytes` to the owner. Returns false, and charges nothing, if the owner's limit forbids
// them. The heap later settles or cancels each charge.
bool charge_heap_owner(HeapOwner owner, uint64_t bytes) noexcept;
// The bytes that the owner's limit still allows.
uint64_t heap_owner_room_bytes(HeapOwner owner) noexcept;
// Cancels a charge, because there was no memory for it.
void cancel_heap_charge(HeapOwner owner, uint64_t bytes) noexcept;
// Settles a charge of `expected_bytes`: the owner holds `bytes` more from now on.
void settle_heap_charge(HeapOwner owner, uint64_t expected_bytes, uint64_t bytes) noexcept;
// Records that the owner holds `bytes` less. Threads: any.
void credit_heap_owner(HeapOwner owner, uint64_t bytes) noexcept;
// Whether the calling thread's last charge was refused; sets `*owner` to the refused owner. Returns
// true once for each refusal.
bool was_refused_by_limit(HeapOwner* owner) noexcept;
// Counts a request of `owner` that failed because of its limit.
void count_refusal(HeapOwner owner) noexcept;

}  // namespace bedplate
