// A queue of objects of one kind in order of arrival, linked through one of their members.
//
// It owns nothing and allocates nothing. An object outside the queue may use the member otherwise;
// an object in the queue must not move.
//
//     TailQueue<&FileOperation::next> waiting_;
//
// Threads: one at a time. Invariant: the last object links to none. (push)
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "platform/assert.h"

namespace bedplate {

template <auto kNext>
class TailQueue;

template <typename Object, Object* Object::*kNext>
class TailQueue<kNext> {
 public:
  bool is_empty() const noexcept { return first_ == nullptr; }
  // The object that pop() would return; it stays in the queue. nullptr: the queue is empty.
  Object* first() const noexcept { return first_; }

  // Requires: `object` is not queued.
  void push(Object& object) noexcept {
    BP_DCHECK(first_ == nullptr || (last_ != &object && last_->*kNext == nullptr));
    object.*kNext = nullptr;
    (first_ == nullptr ? first_ : last_->*kNext) = &object;
    last_ = &object;
  }
  // Requires: the queue is not empty.
  Object& pop() noexcept {
    BP_DCHECK(first_ != nullptr);
    Object& object = *first_;
    first_ = object.*kNext;
    return object;
  }
  // Empties the queue, and returns a queue of its objects. A loop that pops from the returned queue
  // ends, even if its callees push objects to this queue again.
  TailQueue take() noexcept { return std::exchange(*this, {}); }

  // Counts the objects, for is_valid(). Returns nothing if there are more than `most`, if
  // `is_good(object)` is false for an object, or if the chain does not end at the last object
  // pushed. Ends even if the queue is circular. Cost: a look at each object.
  template <typename IsGood>
  std::optional<size_t> count(size_t most, IsGood&& is_good) const noexcept {
    size_t count = 0;
    const Object* before = nullptr;
    for (const Object* each = first_; each != nullptr; before = each, each = each->*kNext) {
      if (count++ == most || !is_good(*each)) return {};
    }
    if (count > 0 && before != last_) return {};
    return count;
  }

 private:
  Object* first_ = nullptr;
  Object* last_ = nullptr;  // valid while the queue is not empty
};

}  // namespace bedplate
