// Buffers of any size from a planned piece of memory: what a store's requests lie in meanwhile.
//
// A bit for each unit says whether it is taken; a buffer is the first run of free ones that is long
// enough. So the same few units, which are in the caches, serve as long as little is in flight, and
// nothing is written into memory that a device may still see. A request of 4 KiB takes one word.
// It does not know what it gave out: the taker of a buffer gives it back with its size.
//
// Invariants, which is_valid() looks at, around what changes them: 1. There is a bit for each unit,
// and those beyond the last unit are taken. 2. free_count_ counts the units that are free.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {

class BufferArena {
 public:
  static constexpr uint64_t kUnitBytes = 4 * kKiB;

  // The words that the bits of so much memory take.
  static constexpr uint64_t words_for(uint64_t bytes) noexcept {
    return (bytes / kUnitBytes + 63) / 64;
  }

  // Requires: `memory` is aligned to a unit and whole units; `words`: words_for(its size). Both
  // outlive this.
  void create(std::span<std::byte> memory, std::span<uint64_t> words) noexcept {
    BP_ASSERT(memory.size() % kUnitBytes == 0 && words.size() == words_for(memory.size()));
    BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kUnitBytes == 0);
    memory_ = memory;
    words_ = words;
    unit_count_ = memory.size() / kUnitBytes;
    for (uint64_t& word : words) word = 0;
    free_count_ = unit_count_;
    // Those that there are no units for are taken for ever.
    if (unit_count_ % 64 != 0) words.back() = ~uint64_t{0} << unit_count_ % 64;
    BP_DCHECK_SLOW(is_valid());
  }

  // Returns memory aligned to a unit; nullptr: there is no free run of so many bytes.
  // Requires: `bytes` is over 0. Cost: a look at each word up to the run.
  std::byte* try_take(uint64_t bytes) noexcept {
    BP_KEEPS_VALID(*this);
    BP_DCHECK(bytes > 0);
    const uint64_t count = units_of(bytes);
    if (count > free_count_) return nullptr;
    uint64_t begin = next(0, false);
    while (begin < unit_count_) {
      const uint64_t end = next(begin, true, begin + count);
      BP_DCHECK(begin < end && end <= unit_count_);
      if (end - begin >= count) {
        set(begin, count, true);
        free_count_ -= count;
        return memory_.data() + begin * kUnitBytes;
      }
      begin = next(end, false);
    }
    return nullptr;
  }

  // Requires: `buffer` was taken with as many bytes, and not given back.
  void give(std::byte* buffer, uint64_t bytes) noexcept {
    BP_KEEPS_VALID(*this);
    BP_ASSERT(buffer >= memory_.data() && buffer < memory_.data() + memory_.size());
    BP_DCHECK(bytes > 0 && static_cast<uint64_t>(buffer - memory_.data()) % kUnitBytes == 0);
    const auto begin = static_cast<uint64_t>(buffer - memory_.data()) / kUnitBytes;
    set(begin, units_of(bytes), false);
    free_count_ += units_of(bytes);
    BP_DCHECK(free_count_ <= unit_count_);
  }

  uint64_t free_bytes() const noexcept { return free_count_ * kUnitBytes; }
  uint64_t bytes() const noexcept { return memory_.size(); }

  // Cost: a look at each word.
  bool is_valid() const noexcept {
    if (words_.size() != words_for(memory_.size())) return false;
    const uint64_t beyond = unit_count_ % 64 == 0 ? 0 : ~uint64_t{0} << unit_count_ % 64;
    if (beyond != 0 && (words_.back() & beyond) != beyond) return false;
    uint64_t free_count = 0;
    for (const uint64_t word : words_) free_count += static_cast<uint64_t>(std::popcount(~word));
    return free_count == free_count_;
  }

 private:
  static constexpr uint64_t units_of(uint64_t bytes) noexcept {
    return (bytes + kUnitBytes - 1) / kUnitBytes;
  }

  // The first unit from `at` on that is taken, or free; where there is none before `end`, that is
  // how far it looked.
  uint64_t next(uint64_t at, bool is_taken, uint64_t end = UINT64_MAX) const noexcept {
    while (at < unit_count_ && at < end) {
      uint64_t word = words_[at / 64];
      if (!is_taken) word = ~word;
      word >>= at % 64;
      if (word != 0) return at + static_cast<uint64_t>(std::countr_zero(word));
      at = (at / 64 + 1) * 64;
    }
    return at < unit_count_ ? at : unit_count_;
  }

  void set(uint64_t begin, uint64_t count, bool is_taken) noexcept {
    BP_DCHECK(begin < unit_count_ && count <= unit_count_ - begin);
    while (count > 0) {
      const uint64_t shift = begin % 64;
      const uint64_t here = count < 64 - shift ? count : 64 - shift;
      const uint64_t mask = (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << shift;
      uint64_t& word = words_[begin / 64];
      BP_ASSERT((word & mask) == (is_taken ? 0 : mask));
      word ^= mask;
      begin += here;
      count -= here;
    }
  }

  std::span<std::byte> memory_;
  std::span<uint64_t> words_;
  uint64_t unit_count_ = 0;
  uint64_t free_count_ = 0;
};

}  // namespace bedplate
