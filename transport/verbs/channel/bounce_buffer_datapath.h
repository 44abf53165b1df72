// A bounce buffer: a small piece of registered memory. Bytes are copied through it that the device
// could not reach otherwise, or a peer might not. Taken and given back in pages. A part of
// VerbsProvider. Threads: one.
//
// Invariant: the pages that are taken are those of pieces that are out. (is_valid() of PieceMap)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "transport/messages/piece_map_datapath.h"

namespace bedplate {

class BounceBuffer {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // Makes it of the whole pages of `memory`, which outlives this. Before the seal: it allocates.
  void create(std::span<std::byte> memory) {
    BP_ASSERT(pages_.unit_count() == 0);
    BP_DCHECK(reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes == 0);
    memory_ = memory;
    pages_ = PieceMap(static_cast<uint32_t>(memory.size() / kPageBytes));
  }

  uint64_t bytes() const noexcept { return pages_.unit_count() * kPageBytes; }

  // Takes `bytes` in one piece, or returns nullptr while none is free. Requires: bytes > 0.
  // Cost: a look at each page, from the last find on.
  std::byte* take(uint64_t bytes) noexcept {
    BP_DCHECK(bytes > 0);
    if (bytes > this->bytes()) return nullptr;
    const uint32_t first = pages_.find_next(pages_.unit_count(), page_count(bytes));
    if (first == PieceMap::kNone) return nullptr;
    pages_.take(first, page_count(bytes));
    return memory_.data() + first * kPageBytes;
  }

  // Requires: `piece` is of take(bytes), and was not given back since.
  void give_back(const std::byte* piece, uint64_t bytes) noexcept {
    BP_ASSERT(piece >= memory_.data() && piece < memory_.data() + memory_.size());
    BP_DCHECK(bytes > 0 && (piece - memory_.data()) % static_cast<ptrdiff_t>(kPageBytes) == 0);
    const auto first = static_cast<uint64_t>(piece - memory_.data()) / kPageBytes;
    pages_.give_back(static_cast<uint32_t>(first), page_count(bytes));
  }

  bool is_valid() const noexcept { return pages_.is_valid(); }

 private:
  static uint32_t page_count(uint64_t bytes) noexcept {
    return static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes);
  }

  std::span<std::byte> memory_;
  PieceMap pages_;
};

}  // namespace bedplate
