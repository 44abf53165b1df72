// Releases the parts of quiet processes, so that other processes can get them: in chunks, for a
// short time in each turn of the control thread. The parts take turns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "pinned_pool/join/join_connections.h"
#include "pinned_pool/join/join_roster.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {

// Threads: the control thread's.
class PartReleases {
 public:
  // Adds a part to be released: its process is quiet.
  void add() noexcept {
    ++count_;
    interval_ns_ = due_ns_ = 0;
  }
  uint32_t count() const noexcept { return count_; }
  // The time of the next turn; UINT64_MAX: there are no parts.
  uint64_t due_ns() const noexcept {
    if (count_ == 0) return UINT64_MAX;
    return is_renewing_ ? 0 : due_ns_;
  }

  // Continues the releases, if due. Calls freed(connection) for each connection whose part is free;
  // freed() may forget the connection. `connections`: all connections, always in the same order.
  template <typename Freed>
  void turn(JoinRoster& roster, std::span<JoinConnection> connections, Freed freed) noexcept {
    if (count_ == 0) return;
    const uint64_t now = monotonic_ns();
    if (now < due_ns()) return;
    is_renewing_ = false;
    const auto count = static_cast<uint32_t>(connections.size());
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t index = (from_ + i) % count;
      JoinConnection& connection = connections[index];
      if (!connection.is_quiet()) continue;
      const JoinRoster::Release outcome = roster.try_release(connection.instance);
      if (outcome == JoinRoster::Release::kNotYet) continue;
      is_renewing_ = true;
      if (outcome == JoinRoster::Release::kFree) {
        BP_ASSERT(count_ > 0);
        --count_;
        freed(connection);
      }
      if (monotonic_ns() - now < kTurnNs) continue;
      from_ = index + 1;
      break;
    }
    if (is_renewing_) return;
    interval_ns_ = std::clamp(2 * interval_ns_, kIntervalMinNs, kIntervalMaxNs);
    due_ns_ = now + interval_ns_;
  }

 private:
  // The interval to the next turn after a turn without progress: no part is forgotten yet, or pages
  // are missing. It doubles each time, within these limits.
  static constexpr uint64_t kIntervalMinNs = kNsPerMs;
  static constexpr uint64_t kIntervalMaxNs = 64 * kNsPerMs;
  // After this time a turn begins no further chunk.
  static constexpr uint64_t kTurnNs = 2 * kNsPerMs;

  uint32_t count_ = 0;        // parts to be released
  bool is_renewing_ = false;  // the last turn made progress: there may be more to do
  uint32_t from_ = 0;         // the index of the connection to begin at
  uint64_t interval_ns_ = 0;
  uint64_t due_ns_ = 0;
};

}  // namespace bedplate
