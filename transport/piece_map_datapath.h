// A bit for each unit of some memory, which says whether it is taken, and the search for so many
// free ones in a row. Eager regions and bounce buffers give out pieces of any length by it.
//
// It knows neither the memory nor whose a piece is.
//
// Invariants: 1. taken_count() is how many bits are set. 2. The next search begins within.
// (is_valid)
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "platform/assert.h"

namespace bedplate {

// Threads: one at a time.
class PieceMap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  PieceMap() noexcept = default;
  // Allocates; before the data path runs.
  explicit PieceMap(uint32_t unit_count) : words_((unit_count + 63) / 64), unit_count_(unit_count) {
    BP_ASSERT(unit_count < kNone);
  }

  uint32_t unit_count() const noexcept { return unit_count_; }
  uint32_t taken_count() const noexcept { return taken_count_; }
  // Requires: unit < unit_count().
  bool is_taken(uint32_t unit) const noexcept { return (words_[unit / 64] & bit(unit)) != 0; }

  // The first of `count` free units in a row in [begin, end); kNone: there are none.
  // Requires: count > 0, end <= unit_count(). Cost: a look at each unit.
  uint32_t find(uint32_t begin, uint32_t end, uint32_t count) const noexcept {
    BP_DCHECK(count > 0 && end <= unit_count_);
    uint32_t first = begin;
    for (uint32_t unit = begin; unit < end && count <= end - first; ++unit) {
      if (is_taken(unit)) first = unit + 1;
      else if (unit + 1 - first == count) return first;
    }
    return kNone;
  }
  // The same in [0, end), beginning behind what was taken last: pieces mostly come back in order.
  uint32_t find_next(uint32_t end, uint32_t count) const noexcept {
    const uint32_t first = find(next_, end, count);
    return first != kNone ? first : find(0, end, count);
  }

  // Requires: all of these are free.
  void take(uint32_t first, uint32_t count) noexcept {
    BP_DCHECK_SLOW(is_valid());
    BP_DCHECK(find(first, first + count, count) == first);
    for (uint32_t unit = first; unit < first + count; ++unit) words_[unit / 64] |= bit(unit);
    taken_count_ += count;
    next_ = first + count == unit_count_ ? 0 : first + count;
    BP_DCHECK_SLOW(is_valid());
  }
  // Requires: all of these are taken.
  void give_back(uint32_t first, uint32_t count) noexcept {
    BP_ASSERT(count <= taken_count_ && first <= unit_count_ && count <= unit_count_ - first);
    for (uint32_t unit = first; unit < first + count; ++unit) {
      BP_DCHECK(is_taken(unit));
      words_[unit / 64] &= ~bit(unit);
    }
    taken_count_ -= count;
    BP_DCHECK_SLOW(is_valid());
  }

  // Cost: a look at each word.
  bool is_valid() const noexcept {
    const auto taken =
        std::accumulate(words_.begin(), words_.end(), uint32_t{0}, [](uint32_t sum, uint64_t word) {
          return sum + static_cast<uint32_t>(std::popcount(word));
        });
    return taken == taken_count_ && next_ < std::max(unit_count_, uint32_t{1});
  }

 private:
  static constexpr uint64_t bit(uint32_t unit) noexcept { return uint64_t{1} << (unit % 64); }

  std::vector<uint64_t> words_;
  uint32_t unit_count_ = 0;
  uint32_t taken_count_ = 0;
  uint32_t next_ = 0;
};

}  // namespace bedplate
