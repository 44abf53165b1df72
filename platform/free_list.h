// A list of spare objects of one kind, linked through one of their members. Last in, first out: the
// object that came back last is still in the caches.
//
// The list owns nothing and allocates nothing. Objects outside it may use the member otherwise.
//
//     FreeList<&Task::next_free> spare_;
//
// Threads: one at a time.
#pragma once

#include <cstddef>

#include "platform/assert.h"

namespace bedplate {

template <auto kNext>
class FreeList;

template <typename Object, Object* Object::*kNext>
class FreeList<kNext> {
 public:
  bool is_empty() const noexcept { return first_ == nullptr; }
  // The object that pop() would return; it stays in the list. nullptr: the list is empty.
  Object* first() const noexcept { return first_; }

  // Requires: `object` is not in the list, and is not moved while it is in the list.
  void push(Object& object) noexcept {
    BP_DCHECK(&object != first_);  // has_just() checks the rest of the list
    object.*kNext = first_;
    first_ = &object;
  }
  // Requires: the list is not empty.
  Object& pop() noexcept {
    BP_DCHECK(first_ != nullptr);
    Object& object = *first_;
    first_ = object.*kNext;
    return object;
  }

  // True if the list has exactly `count` objects, and `is_spare(object)` is true of each; for
  // is_valid(). Ends even if the list is circular. Cost: a look at `count` objects at most.
  template <typename IsSpare>
  bool has_just(size_t count, IsSpare&& is_spare) const noexcept {
    const Object* each = first_;
    for (; each != nullptr && count > 0; each = each->*kNext, --count) {
      if (!is_spare(*each)) return false;
    }
    return each == nullptr && count == 0;
  }

 private:
  Object* first_ = nullptr;
};

}  // namespace bedplate
