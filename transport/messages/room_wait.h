// The longest sleep of a shard between two looks while it waits for space at a peer.
//
// A peer that empties its full queue rings no bell, so the shard looks. The pause before each look
// is the time since begin(), but at least kLookMinNs and at most kLookMaxNs. So the shard notices
// space after at most twice the time that the space took to appear, or after kLookMinNs. A peer
// that never reads, as an untrusted one may choose, costs little.
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

  // The owner calls it when somebody begins to wait, or a waiting caller made progress. Cost: a
  // clock call.
  void begin() noexcept { begun_ns_ = monotonic_ns(); }
  // Requires: begin(). Cost: a clock call.
  uint64_t sleep_max_ns() const noexcept {
    return std::clamp(monotonic_ns() - begun_ns_, kLookMinNs, kLookMaxNs);
  }

 private:
  uint64_t begun_ns_ = 0;
};

}  // namespace bedplate
