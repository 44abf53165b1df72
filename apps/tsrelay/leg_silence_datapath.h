// Tells why a leg is silent: the most frequent cause of its recent drops.
//
// Threads: the stream's shard.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "apps/tsrelay/relay_counters.h"

namespace bedplate::relay {

class LegSilence {
 public:
  // Reads the leg's drop counters. Called periodically.
  void look(const LegCounters& counters, uint64_t now_ns) noexcept {
    // In the order of LegArrival.
    const Drops drops = {counters.rtp_malformed.read(), counters.ts_malformed.read(),
                         counters.foreign.read(),       counters.truncated.read(),
                         counters.other_type.read(),    counters.no_sync.read(),
                         counters.unnumbered.read()};
    uint64_t most = 0;
    for (size_t i = 0; i < drops.size(); ++i) {
      const uint64_t count = drops[i] - drops_[i];
      if (count <= most) continue;
      most = count;
      cause_ = static_cast<LegArrival>(static_cast<size_t>(LegArrival::kNoRtp) + i);
      dropped_ns_ = now_ns;
    }
    drops_ = drops;
    if (now_ns - dropped_ns_ >= kDroppedNs) cause_ = LegArrival::kNothing;
  }
  // Returns the cause as of the last look(), or kNothing if nothing was dropped for kDroppedNs.
  LegArrival cause() const noexcept { return cause_; }

 private:
  // The cause of drops is reported for this long after the last drop.
  static constexpr uint64_t kDroppedNs = 5'000'000'000;
  // Counts of drops by cause, kNoRtp to kUnnumbered.
  using Drops = std::array<uint64_t, 7>;

  Drops drops_ = {};  // at the last look
  LegArrival cause_ = LegArrival::kNothing;
  uint64_t dropped_ns_ = 0;  // the time of the last drop
};

}  // namespace bedplate::relay
