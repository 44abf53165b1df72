// A bitmap with a bit for each unit of some memory. A bit is set while its unit is taken. A search
// finds a run of free units. Eager regions, bounce buffers and the buffers of stores use it to
// allocate chunks of any length.
//
// It knows neither the memory nor the owners of chunks.
//
// Invariants, which is_valid() looks at, around each change: 1. There is a bit for each unit, and
// no bit beyond the last is set. 2. taken_count() is the number of set bits. 3. The next search
// begins within the map.
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
  explicit PieceMap(uint32_t unit_count) : words_(word_count(unit_count)), unit_count_(unit_count) {
    BP_ASSERT(unit_count < kNone);
  }

  uint32_t unit_count() const noexcept { return unit_count_; }
  uint32_t taken_count() const noexcept { return taken_count_; }
  // Requires: unit < unit_count().
  bool is_taken(uint32_t unit) const noexcept { return (words_[unit / 64] & bit(unit)) != 0; }

  // The first of `count` free units in a row in [begin, end); kNone: there is no such run.
  // Requires: count > 0, end <= unit_count(). Cost: a look at each word, up to the run.
  uint32_t find(uint32_t begin, uint32_t end, uint32_t count) const noexcept {
    BP_DCHECK(count > 0 && end <= unit_count_);
    // The first unit is mostly free, and a predicted branch need not wait for the word.
    uint32_t first = begin < end && !is_taken(begin) ? begin : next<false>(begin, end);
    while (first < end && count <= end - first) {
      const uint32_t taken = next<true>(first, first + count);
      if (taken == first + count) return first;
      first = next<false>(taken, end);
    }
    return kNone;
  }
  // The same in [0, end), but the search begins after the chunk that was taken last, since chunks
  // mostly come back in order. If it finds nothing there, it begins again at 0.
  uint32_t find_next(uint32_t end, uint32_t count) const noexcept {
    const uint32_t first = find(next_, end, count);
    return first != kNone ? first : find(0, end, count);
  }

  // Requires: count > 0; all these units exist and are free.
  void take(uint32_t first, uint32_t count) noexcept {
    BP_KEEPS_VALID(*this);
    BP_DCHECK(find(first, first + count, count) == first);
    set<true>(first, count);
    taken_count_ += count;
    next_ = first + count == unit_count_ ? 0 : first + count;
  }
  // Requires: all these units are taken.
  void give_back(uint32_t first, uint32_t count) noexcept {
    BP_KEEPS_VALID(*this);
    BP_ASSERT(count <= taken_count_ && first <= unit_count_ && count <= unit_count_ - first);
    set<false>(first, count);
    taken_count_ -= count;
  }

  // Cost: a look at each word.
  bool is_valid() const noexcept {
    if (words_.size() != word_count(unit_count_)) return false;
    if (unit_count_ % 64 != 0 && words_.back() >> (unit_count_ % 64) != 0) return false;
    const auto taken =
        std::accumulate(words_.begin(), words_.end(), uint32_t{0}, [](uint32_t sum, uint64_t word) {
          return sum + static_cast<uint32_t>(std::popcount(word));
        });
    return taken == taken_count_ && next_ < std::max(unit_count_, uint32_t{1});
  }

 private:
  static constexpr uint32_t word_count(uint32_t unit_count) noexcept {
    return unit_count / 64 + (unit_count % 64 == 0 ? 0 : 1);
  }
  static constexpr uint64_t bit(uint32_t unit) noexcept { return uint64_t{1} << (unit % 64); }

  // The first taken, or free, unit from `at` on; `end`: there is none before `end`.
  template <bool kIsTaken>
  uint32_t next(uint32_t at, uint32_t end) const noexcept {
    while (at < end) {
      const uint64_t word = (kIsTaken ? words_[at / 64] : ~words_[at / 64]) >> (at % 64);
      if (word != 0) return std::min(at + static_cast<uint32_t>(std::countr_zero(word)), end);
      at = (at / 64 + 1) * 64;
    }
    return end;
  }
  template <bool kIsTaken>
  void set(uint32_t first, uint32_t count) noexcept {
    while (count > 0) {
      const uint32_t shift = first % 64;
      const uint32_t here = std::min(count, 64 - shift);
      const uint64_t mask = (~uint64_t{0} >> (64 - here)) << shift;
      uint64_t& word = words_[first / 64];
      BP_ASSERT((word & mask) == (kIsTaken ? 0 : mask));
      word ^= mask;
      first += here;
      count -= here;
    }
  }

  std::vector<uint64_t> words_;
  uint32_t unit_count_ = 0;
  uint32_t taken_count_ = 0;
  uint32_t next_ = 0;
};

}  // namespace bedplate
