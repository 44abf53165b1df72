// Spare objects of one kind, linked through a member of theirs: the object that came back last is
// taken first: it is still in the caches.
//
// It owns nothing and allocates nothing. An object that is not spare may use the member otherwise.
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
  // The object that pop() would return; it stays where it is. nullptr: none is spare.
  Object* first() const noexcept { return first_; }

  // Requires: `object` is not spare, and stays where it is as long as it is.
  void push(Object& object) noexcept {
    BP_DCHECK(&object != first_);  // that it is nowhere behind is has_just()'s to say
    object.*kNext = first_;
    first_ = &object;
  }
  // Requires: one is spare.
  Object& pop() noexcept {
    BP_DCHECK(first_ != nullptr);
    Object& object = *first_;
    first_ = object.*kNext;
    return object;
  }

  // True if exactly `count` are spare, and `is_spare(object)` is true of each; for is_valid(). It
  // ends even if the list is a ring. Cost: a look at each.
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
