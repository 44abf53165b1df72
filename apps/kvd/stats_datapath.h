// The answer of `stats`: names, order and meanings follow memcached 1.6 (its doc/protocol.txt), as
// collectors expect them. Statistics that kvd lacks are left out.
//
// `stats reset` changes only this answer: the appliance's counters only grow, so Stats subtracts
// their values at the reset. Threads: the shard's. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/kvd/kv_counters.h"

namespace bedplate::kvd {

inline constexpr std::string_view kVersion = "1.0.0-bedplate";

// Constants while kvd runs.
struct Facts {
  uint64_t pid = 0;
  uint64_t started_ns = 0;  // monotonic
  uint64_t connections_max = 0;
  uint64_t value_bytes_max = 0;
  uint64_t memory_bytes = 0;
};

class Stats {
 public:
  // Both arguments outlive this.
  Stats(const Facts& facts, const Counters& counters) noexcept
      : facts_(facts), counters_(counters) {}

  // The number of lines.
  static size_t count() noexcept;
  static std::string_view name(size_t index) noexcept;
  // The value as memcached defines it: at most 20 digits. Requires: !is_version(index).
  uint64_t value(size_t index, uint64_t now_ns) const noexcept;
  // Whether the value is kVersion instead of a number.
  static bool is_version(size_t index) noexcept;
  // Later values of counts exclude everything counted until now. Levels, such as curr_items, stay.
  void reset() noexcept;

 private:
  static constexpr size_t kCountMax = 64;

  const Facts& facts_;
  const Counters& counters_;
  uint64_t before_[kCountMax] = {};
};

}  // namespace bedplate::kvd
