// Detects a store that no longer answers, for the log and `stats`.
//
// It only reports: a remote store may be silent for as long as its cluster is, and its requests
// wait. The service's tick() calls look(); the data path measures nothing.
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "apps/blockd/volume_counters.h"
#include "platform/units.h"

namespace bedplate {

class StoreSilence {
 public:
  enum class Change : uint8_t { kNone, kFellSilent, kAnswers };

  // A silence of this length is reported. A drive that is merely slow never pauses for so long.
  static constexpr uint64_t kToldNs = 5 * kNsPerSecond;

  // Compares the store's counters with those at the last call, and updates `silent_ns`. Returns
  // kFellSilent once operations are in progress and none has ended for kToldNs, then kAnswers once
  // one ends.
  Change look(StoreCounters& counters, uint64_t now_ns) noexcept {
    const uint64_t ended = counters.operations_ended.read();
    if (since_ns_ == 0 || ended != ended_ || counters.operations.read() == 0) {
      ended_ = ended;
      since_ns_ = now_ns;
      counters.silent_ns.set(0);
      const bool was_told = is_told_;
      is_told_ = false;
      return was_told ? Change::kAnswers : Change::kNone;
    }
    const uint64_t silent_ns = now_ns - since_ns_;
    counters.silent_ns.set(silent_ns);
    if (is_told_ || silent_ns < kToldNs) return Change::kNone;
    is_told_ = true;
    return Change::kFellSilent;
  }

 private:
  uint64_t ended_ = 0;
  uint64_t since_ns_ = 0;
  bool is_told_ = false;
};

}  // namespace bedplate
