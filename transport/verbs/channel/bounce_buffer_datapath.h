// A bounce buffer: a small piece of registered memory through which bytes are copied that a device
// could not reach otherwise, or a peer might not. Taken and given back in pages; a bit for each
// says whether it is taken. A part of VerbsProvider. Threads: one.
//
// Invariants, which is_valid() looks at: the pages that are marked are those of pieces that are
// out, and the search goes on within the buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "platform/assert.h"

namespace bedplate {

class BounceBuffer {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // Of whole pages of `memory`, which outlives this. Before the seal: it allocates.
  void create(std::span<std::byte> memory) {
    BP_ASSERT(is_taken_.empty());
    memory_ = memory;
    is_taken_.assign(memory.size() / kPageBytes, false);
  }

  uint64_t bytes() const noexcept { return is_taken_.size() * kPageBytes; }

  // `bytes` in one piece, or nullptr while there are none. Requires: bytes > 0.
  // Cost: it looks at each page once, from where it found one last.
  std::byte* take(uint64_t bytes) noexcept {
    BP_DCHECK(bytes > 0);
    BP_KEEPS_VALID(*this);
    const uint64_t wanted = (bytes + kPageBytes - 1) / kPageBytes;
    const uint64_t count = is_taken_.size();
    if (wanted > count) return nullptr;
    uint64_t run = 0;
    for (uint64_t i = 0, page = next_; i < count + wanted; ++i, ++page) {
      if (page == count) page = run = 0;  // a piece does not go round the end
      run = is_taken_[page] ? 0 : run + 1;
      if (run < wanted) continue;
      const uint64_t first = page + 1 - wanted;
      for (uint64_t at = first; at <= page; ++at) is_taken_[at] = true;
      taken_count_ += wanted;
      next_ = page + 1 == count ? 0 : page + 1;
      return memory_.data() + first * kPageBytes;
    }
    return nullptr;
  }

  // Requires: `piece` is of take(bytes), and was not given back since.
  void give_back(const std::byte* piece, uint64_t bytes) noexcept {
    BP_KEEPS_VALID(*this);
    BP_ASSERT(piece >= memory_.data() && piece < memory_.data() + memory_.size());
    const auto first = static_cast<uint64_t>(piece - memory_.data()) / kPageBytes;
    for (uint64_t at = first; at < first + (bytes + kPageBytes - 1) / kPageBytes; ++at) {
      BP_DCHECK(is_taken_[at]);
      is_taken_[at] = false;
      --taken_count_;
    }
  }

  // Cost: a look at each page.
  bool is_valid() const noexcept {
    const auto taken = std::count(is_taken_.begin(), is_taken_.end(), true);
    return static_cast<uint64_t>(taken) == taken_count_ &&
           (is_taken_.empty() ? next_ == 0 : next_ < is_taken_.size());
  }

 private:
  std::span<std::byte> memory_;
  std::vector<bool> is_taken_;
  uint64_t taken_count_ = 0;
  uint64_t next_ = 0;
};

}  // namespace bedplate
