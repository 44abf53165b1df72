// Frames that wait for the MAC addresses of stations on the link, of all neighbours together, in
// the order in which they came. If there is no room, the oldest of all goes: its station has had
// the longest time to answer.
//
// It knows a neighbour only by a number, and neither sends nor drops frames.
//
// Invariants, which is_valid() looks at: 1. At most count_max() frames wait. 2. Each used place has
// a frame, and no other place has one.
#pragma once

#include <cstdint>
#include <memory>

#include <rte_mbuf.h>

#include "platform/assert.h"

namespace bedplate {

// Threads: the shard's. Nothing is allocated after it was made.
class WaitingFrames {
 public:
  struct Waiting {
    rte_mbuf* frame = nullptr;
    uint32_t neighbour = 0;
  };

  // Before the seal: it allocates. Requires: count_max > 0.
  explicit WaitingFrames(uint32_t count_max);
  // Frees the frames that wait.
  ~WaitingFrames();
  WaitingFrames(const WaitingFrames&) = delete;
  WaitingFrames& operator=(const WaitingFrames&) = delete;

  uint32_t count() const noexcept { return count_; }
  uint32_t count_max() const noexcept { return count_max_; }
  // Cost: a look at all that wait.
  uint32_t count_of(uint32_t neighbour) const noexcept;

  // Takes `frame` as the youngest. If there was no room, returns the oldest of all, which is the
  // caller's then; else none.
  Waiting push(uint32_t neighbour, rte_mbuf* frame) noexcept;

  // Hands each frame of `neighbour`, the oldest first, to take(rte_mbuf*), which owns it then.
  // Requires: take() does not come back here. Cost: a look at all that wait.
  template <typename Take>
  void take_of(uint32_t neighbour, Take&& take) noexcept {
    uint32_t kept_count = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      const Waiting one = places_[index_of(i)];
      places_[index_of(i)] = {};
      if (one.neighbour == neighbour) {
        take(one.frame);
      } else {
        places_[index_of(kept_count++)] = one;
      }
    }
    count_ = kept_count;
    BP_DCHECK_SLOW(is_valid());
  }

  bool is_valid() const noexcept;

 private:
  // The index of the frame that is `order` places younger than the oldest.
  uint32_t index_of(uint32_t order) const noexcept {
    BP_DCHECK(oldest_ < count_max_ && order <= count_max_);
    const uint32_t index = oldest_ + order;
    return index < count_max_ ? index : index - count_max_;
  }

  uint32_t count_max_;
  std::unique_ptr<Waiting[]> places_;
  uint32_t oldest_ = 0;  // its index
  uint32_t count_ = 0;
};

}  // namespace bedplate
