// Decides which writes of a volume may run at the same time.
//
// An unaligned write reads the blocks at its edges, and writes them back with its own bytes merged
// in. That would undo another write to these blocks in the meantime. So a list keeps all writes in
// the order of arrival. A write waits for each earlier write that shares a block with it, if either
// of the two is unaligned. Aligned writes do not wait for one another: if a client overlaps two of
// them, their order is undefined.
//
// Invariants, by is_valid(): 1. The list is linked consistently in both directions. 2. The counts
// are those of the exclusive writes in it, and of the writes that have not begun. 3. A write that
// has begun shares no block with an earlier one, if either is exclusive.
#pragma once

#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

struct OrderedWrite {
  uint64_t begin = 0;  // whole blocks
  uint64_t end = 0;
  bool is_exclusive = false;  // it reads blocks, modifies them and writes them back
  bool has_begun = false;
  OrderedWrite* previous = nullptr;
  OrderedWrite* next = nullptr;
};

class WriteOrder {
 public:
  // Returns true if the write may begin at once; else a later try_next() returns it. The write
  // stays in place until leave(). Cost: none while all writes are aligned; else a walk over the
  // writes in the list.
  [[nodiscard]] bool enter(OrderedWrite& write) noexcept {
    BP_DCHECK(!write.has_begun && write.begin <= write.end);
    write.previous = last_;
    write.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &write;
    last_ = &write;
    exclusive_count_ += write.is_exclusive ? 1 : 0;
    write.has_begun = may_begin(write);
    waiting_count_ += write.has_begun ? 0 : 1;
    BP_DCHECK_SLOW(is_valid());
    return write.has_begun;
  }

  // Ends a write. Others may begin then: the caller calls try_next() until it returns nullptr.
  // Requires: `write` has begun, and has not left.
  void leave(OrderedWrite& write) noexcept {
    BP_ASSERT(write.has_begun);
    BP_DCHECK(!write.is_exclusive || exclusive_count_ > 0);
    BP_ASSERT((write.previous == nullptr ? first_ : write.previous->next) == &write);
    BP_ASSERT((write.next == nullptr ? last_ : write.next->previous) == &write);
    (write.previous == nullptr ? first_ : write.previous->next) = write.next;
    (write.next == nullptr ? last_ : write.next->previous) = write.previous;
    exclusive_count_ -= write.is_exclusive ? 1 : 0;
    write.has_begun = false;
    BP_DCHECK_SLOW(is_valid());
  }

  // The first waiting write that may begin now; nullptr: none.
  OrderedWrite* try_next() noexcept {
    if (waiting_count_ == 0) return nullptr;
    for (OrderedWrite* each = first_; each != nullptr; each = each->next) {
      if (each->has_begun || !may_begin(*each)) continue;
      each->has_begun = true;
      --waiting_count_;
      BP_DCHECK_SLOW(is_valid());
      return each;
    }
    return nullptr;
  }

  // Cost: for each write, a walk over the writes before it.
  bool is_valid() const noexcept {
    uint32_t exclusive_count = 0;
    uint32_t waiting_count = 0;
    const OrderedWrite* before = nullptr;
    for (const OrderedWrite* each = first_; each != nullptr; before = each, each = each->next) {
      if (each->previous != before || each->begin > each->end) return false;
      if (each->has_begun && !may_begin(*each)) return false;
      exclusive_count += each->is_exclusive ? 1 : 0;
      waiting_count += each->has_begun ? 0 : 1;
    }
    return before == last_ && exclusive_count == exclusive_count_ &&
           waiting_count == waiting_count_;
  }

 private:
  bool may_begin(const OrderedWrite& write) const noexcept {
    if (exclusive_count_ == 0) return true;
    for (const OrderedWrite* each = write.previous; each != nullptr; each = each->previous) {
      const bool overlaps = each->begin < write.end && write.begin < each->end;
      if (overlaps && (each->is_exclusive || write.is_exclusive)) return false;
    }
    return true;
  }

  OrderedWrite* first_ = nullptr;
  OrderedWrite* last_ = nullptr;
  uint32_t exclusive_count_ = 0;
  uint32_t waiting_count_ = 0;
};

}  // namespace bedplate
