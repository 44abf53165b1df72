// A bounce buffer: registered memory, taken and given back in pages. Bytes are copied through it if
// the device cannot reach their own memory, or if a peer must not. A part of VerbsProvider.
// Threads: the shard's.
//
// Invariant: the taken pages are those of the chunks in use. (is_valid() of PieceMap)
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

  // Makes it of the whole pages of `memory`, which outlives it. Before the seal: it allocates.
  // Requires: called once; `memory` begins at a page.
  void create(std::span<std::byte> memory) {
    BP_ASSERT(pages_.unit_count() == 0);
    BP_DCHECK(reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes == 0);
    memory_ = memory;
    pages_ = PieceMap(static_cast<uint32_t>(memory.size() / kPageBytes));
  }

  uint64_t bytes() const noexcept { return pages_.unit_count() * kPageBytes; }

  // Takes `bytes` of contiguous memory, in whole pages. Returns nullptr if no free run is as long.
  // Requires: bytes > 0. Cost: a look at each word of the bitmap (64 pages) up to the run; begins
  // after the chunk that was taken last.
  std::byte* take(uint64_t bytes) noexcept {
    BP_DCHECK(bytes > 0);
    if (bytes > this->bytes()) return nullptr;
    const uint32_t first = pages_.find_next(pages_.unit_count(), page_count(bytes));
    if (first == PieceMap::kNone) return nullptr;
    pages_.take(first, page_count(bytes));
    return memory_.data() + first * kPageBytes;
  }

  // Requires: `piece` is from take(bytes), and has not been given back since.
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
