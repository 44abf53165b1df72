// Buffers of any size in a planned range of memory, for the data of a store's requests.
//
// First fit: a buffer is the first run of free units that is long enough. So while little is in
// flight, the same few units serve, and they stay in the caches. The arena writes nothing into its
// memory, which a device may still read. It keeps no list of buffers: the caller gives a buffer
// back with its size.
//
// Invariant: the taken units are exactly those of the buffers in use. is_valid() checks the number
// of units and the map (PieceMap::is_valid()).
// Threads: the volume's shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "platform/units.h"
#include "transport/messages/piece_map_datapath.h"

namespace bedplate {

class BufferArena {
 public:
  static constexpr uint64_t kUnitBytes = 4 * kKiB;

  // Before the seal: it allocates. Requires: `memory` is aligned to a unit, has a whole number of
  // units below PieceMap::kNone, and outlives this.
  void create(std::span<std::byte> memory) {
    BP_ASSERT(memory.size() % kUnitBytes == 0 && memory.size() / kUnitBytes < PieceMap::kNone);
    BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kUnitBytes == 0);
    memory_ = memory;
    units_ = PieceMap(static_cast<uint32_t>(memory.size() / kUnitBytes));
  }

  // Returns memory aligned to a unit; nullptr: no free run has that many bytes.
  // Requires: `bytes` is over 0. Cost: a look at one word for each 64 units, up to the run.
  std::byte* try_take(uint64_t bytes) noexcept {
    BP_DCHECK(bytes > 0);
    if (bytes > free_bytes()) return nullptr;
    const uint32_t begin = units_.find(0, units_.unit_count(), units_of(bytes));
    if (begin == PieceMap::kNone) return nullptr;
    units_.take(begin, units_of(bytes));
    return memory_.data() + begin * kUnitBytes;
  }

  // Requires: `buffer` was taken with the same `bytes`, and not given back.
  void give(std::byte* buffer, uint64_t bytes) noexcept {
    BP_ASSERT(buffer >= memory_.data() && buffer < memory_.data() + memory_.size());
    BP_DCHECK(bytes > 0 && static_cast<uint64_t>(buffer - memory_.data()) % kUnitBytes == 0);
    const auto begin = static_cast<uint64_t>(buffer - memory_.data()) / kUnitBytes;
    units_.give_back(static_cast<uint32_t>(begin), units_of(bytes));
  }

  uint64_t free_bytes() const noexcept {
    return (units_.unit_count() - units_.taken_count()) * kUnitBytes;
  }
  uint64_t bytes() const noexcept { return memory_.size(); }

  bool is_valid() const noexcept {
    return units_.unit_count() * kUnitBytes == memory_.size() && units_.is_valid();
  }

 private:
  static uint32_t units_of(uint64_t bytes) noexcept {
    return static_cast<uint32_t>((bytes + kUnitBytes - 1) / kUnitBytes);
  }

  std::span<std::byte> memory_;
  PieceMap units_;
};

}  // namespace bedplate
