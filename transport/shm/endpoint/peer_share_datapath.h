// The share of each peer in a stock of units (loans, operations, chunks of the eager region): the
// number that it holds, and whether it may take one more.
//
// A member takes units for all its peers from one stock; a peer frees its units by reading. A
// stopped peer frees none, so it must not hold them all, or the member could send to nobody.
// Therefore the last units, the reserve, are for peers that hold none.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "platform/assert.h"

namespace bedplate {

// Threads: one at a time.
//
// Invariant: the units that peers hold and the free ones add up to all units. (is_valid)
class PeerShare {
 public:
  PeerShare() noexcept = default;
  // Allocates; before the data path runs.
  PeerShare(uint32_t peer_count, uint32_t unit_count, uint32_t reserve_count)
      : held_(peer_count),
        unit_count_(unit_count),
        free_count_(unit_count),
        reserve_count_(reserve_count) {
    BP_ASSERT(reserve_count <= unit_count);
  }

  // Requires, for all functions below: peer < peer_count.
  uint32_t held_by(uint32_t peer) const noexcept { return held_[peer]; }
  uint32_t free_count() const noexcept { return free_count_; }  // units that nobody holds
  // Whether the peer may take a unit now: one is free, beside the reserve if the peer holds any.
  bool may_take(uint32_t peer) const noexcept {
    BP_DCHECK(peer < held_.size());
    return free_count_ > (held_[peer] == 0 ? 0 : reserve_count_);
  }
  // Requires: a unit is free. After may_take() was true once, the peer may take several units.
  void take(uint32_t peer) noexcept {
    BP_DCHECK(peer < held_.size());
    BP_ASSERT(free_count_ > 0);
    ++held_[peer];
    --free_count_;
    BP_DCHECK_SLOW(is_valid());
  }
  void give_back(uint32_t peer) noexcept {
    BP_DCHECK(peer < held_.size());
    BP_ASSERT(held_[peer] > 0);
    --held_[peer];
    ++free_count_;
    BP_DCHECK_SLOW(is_valid());
  }

  bool is_valid() const noexcept {
    return std::accumulate(held_.begin(), held_.end(), uint64_t{free_count_}) == unit_count_;
  }

 private:
  std::vector<uint32_t> held_;
  uint32_t unit_count_ = 0;
  uint32_t free_count_ = 0;
  uint32_t reserve_count_ = 0;
};

}  // namespace bedplate
