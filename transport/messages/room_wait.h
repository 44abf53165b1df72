// The longest sleep of a shard between two looks while it waits for room at a peer.
//
// A peer that empties its full queue rings nobody, so the shard looks. It looks again after as long
// as it has waited already: room is noticed at most twice as late as it comes, and a peer that
// never reads, as an untrusted one may choose to, costs next to nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/clock.h"

namespace bedplate {

// Threads: one.
class RoomWait {
 public:
  static constexpr uint64_t kLookMinNs = 200'000;
  static constexpr uint64_t kLookMaxNs = 50 * kNsPerMs;

  // Somebody begins to wait, or one that has waited got on. Cost: a clock call.
  void begin() noexcept { begun_ns_ = monotonic_ns(); }
  // Requires: begin(). Cost: a clock call.
  uint64_t sleep_max_ns() const noexcept {
    return std::clamp(monotonic_ns() - begun_ns_, kLookMinNs, kLookMaxNs);
  }

 private:
  uint64_t begun_ns_ = 0;
};

}  // namespace bedplate
