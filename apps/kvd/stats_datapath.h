// The answers of `stats` and of its sections: names, order and meanings follow memcached 1.6 (its
// doc/protocol.txt), as collectors expect them. Statistics that kvd lacks are left out. The cache
// is one slab class, whose chunks are its lines and whose pages are 1 MiB.
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
  // The sections that have lines.
  enum class Section : uint8_t { kGeneral, kSettings, kItems, kSlabs };
  struct Line {
    std::string_view name;
    std::string_view text;  // the value, unless it is a number of at most 20 digits
    uint64_t number = 0;
  };

  // Both arguments outlive this.
  Stats(const Facts& facts, const Counters& counters) noexcept
      : facts_(facts), counters_(counters) {}

  static size_t count(Section section) noexcept;
  // Requires: index < count(section).
  Line line(Section section, size_t index, uint64_t now_ns) const noexcept;
  // Later values of counts exclude everything counted until now. Levels, such as curr_items, stay.
  void reset() noexcept;

 private:
  static constexpr size_t kSections = 4;
  static constexpr size_t kCountMax = 64;

  const Facts& facts_;
  const Counters& counters_;
  uint64_t before_[kSections][kCountMax] = {};
};

}  // namespace bedplate::kvd
