// Frames of all neighbours that wait for MAC addresses, in their order of arrival. If the table is
// full, the oldest frame leaves: its station has had the longest time to answer.
//
// It knows a neighbour only by a number. It sends no frame, and frees frames only in its
// destructor.
//
// Invariants, checked by is_valid(): 1. At most count_max() frames wait. 2. Exactly the used
// entries have a frame.
#pragma once

#include <cstdint>
#include <memory>

#include <rte_mbuf.h>

#include "platform/assert.h"

namespace bedplate {

// Threads: the shard's. No allocation after construction.
class WaitingFrames {
 public:
  struct Waiting {
    rte_mbuf* frame = nullptr;
    uint32_t neighbour = 0;
  };

  // Before the seal: it allocates. Requires: count_max > 0.
  explicit WaitingFrames(uint32_t count_max);
  // Frees the waiting frames.
  ~WaitingFrames();
  WaitingFrames(const WaitingFrames&) = delete;
  WaitingFrames& operator=(const WaitingFrames&) = delete;

  uint32_t count() const noexcept { return count_; }
  uint32_t count_max() const noexcept { return count_max_; }
  // Cost: a look at all waiting frames.
  uint32_t count_of(uint32_t neighbour) const noexcept;

  // Adds `frame` as the youngest, and owns it. If the table was full, returns the oldest frame,
  // which is the caller's then; otherwise the returned `frame` is nullptr.
  Waiting push(uint32_t neighbour, rte_mbuf* frame) noexcept;

  // Passes each frame of `neighbour`, the oldest first, to take(rte_mbuf*), which then owns it.
  // Requires: take() does not call this object.
  // Cost: a look at all waiting frames.
  template <typename Take>
  void take_of(uint32_t neighbour, Take&& take) noexcept {
    uint32_t kept_count = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      const Waiting one = waiting_[index_of(i)];
      waiting_[index_of(i)] = {};
      if (one.neighbour == neighbour) {
        take(one.frame);
      } else {
        waiting_[index_of(kept_count++)] = one;
      }
    }
    count_ = kept_count;
    BP_DCHECK_SLOW(is_valid());
  }

  bool is_valid() const noexcept;

 private:
  // The index of the frame at position `order`; the oldest is at 0.
  uint32_t index_of(uint32_t order) const noexcept {
    BP_DCHECK(oldest_ < count_max_ && order <= count_max_);
    const uint32_t index = oldest_ + order;
    return index < count_max_ ? index : index - count_max_;
  }

  uint32_t count_max_;
  std::unique_ptr<Waiting[]> waiting_;
  uint32_t oldest_ = 0;  // its index
  uint32_t count_ = 0;
};

}  // namespace bedplate
