// The answers of `stats` and of its sections: names, order and meanings follow memcached 1.6 (its
// doc/protocol.txt), as collectors expect them. Statistics that kvd lacks are left out. The cache
// is one slab class, whose chunks are its lines and whose pages are 1 MiB.
//
// A kvd on several shards answers as one: values of shards are added. `stats reset` changes only
// this answer: the appliance's counters only grow, so Stats subtracts their values at the reset.
// Threads: those of all its shards; each value is one of some moment. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "apps/kvd/kv_counters.h"

namespace bedplate::kvd {

inline constexpr std::string_view kServerVersion = "1.0.0-bedplate";

// Constants while kvd runs.
struct Facts {
  uint64_t pid = 0;
  uint64_t started_ns = 0;  // monotonic
  uint64_t connections_max = 0;
  uint64_t value_bytes_max = 0;
  uint64_t memory_bytes = 0;
  uint32_t shard_count = 1;
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

  // `counters`: of each shard. All outlive this.
  Stats(const Facts& facts, std::span<const Counters* const> counters) noexcept
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
  const std::span<const Counters* const> counters_;
  Counter before_[kSections][kCountMax];  // two resets at a time may mix: both happened now
};

}  // namespace bedplate::kvd
