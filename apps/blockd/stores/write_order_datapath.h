// Which writes of a volume may be under way together.
//
// A write that is not aligned reads the blocks at its edges, and writes them back with its bytes in
// between. Whatever another one writes there meanwhile would be lost. So each write knows its
// blocks, in the order of arrival, and begins once no earlier one is left that has a block in
// common with it, if either of them is not aligned. Aligned ones do not wait for one another: which
// of two that overlap comes last, the client has left open.
#pragma once

#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

struct OrderedWrite {
  uint64_t begin = 0;  // whole blocks
  uint64_t end = 0;
  bool is_exclusive = false;  // reads what it writes back
  bool has_begun = false;
  OrderedWrite* previous = nullptr;
  OrderedWrite* next = nullptr;
};

class WriteOrder {
 public:
  // Returns whether it may begin at once; else try_next() has it once it may.
  // Cost: while all are aligned, none; else a walk over those under way.
  [[nodiscard]] bool enter(OrderedWrite& write) noexcept {
    write.previous = last_;
    write.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &write;
    last_ = &write;
    exclusive_count_ += write.is_exclusive ? 1 : 0;
    write.has_begun = may_begin(write);
    waiting_count_ += write.has_begun ? 0 : 1;
    return write.has_begun;
  }

  // Requires: it has begun.
  void leave(OrderedWrite& write) noexcept {
    BP_ASSERT(write.has_begun);
    (write.previous == nullptr ? first_ : write.previous->next) = write.next;
    (write.next == nullptr ? last_ : write.next->previous) = write.previous;
    exclusive_count_ -= write.is_exclusive ? 1 : 0;
  }

  // The first that waited and now may begin; nullptr: there is none.
  OrderedWrite* try_next() noexcept {
    if (waiting_count_ == 0) return nullptr;
    for (OrderedWrite* each = first_; each != nullptr; each = each->next) {
      if (each->has_begun || !may_begin(*each)) continue;
      each->has_begun = true;
      --waiting_count_;
      return each;
    }
    return nullptr;
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
