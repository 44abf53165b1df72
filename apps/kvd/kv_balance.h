// Looks for memory that a shard of kvd does not use while another one evicts items: the memory is
// divided equally, and a few long values may fill the part of one shard. The result is a gauge of
// the shard with the memory; their sum raises an alert (kv_counters.h).
//
// Threads: one, the main thread. It reads the counters of all shards, and writes that gauge alone.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/kvd/kv_counters.h"
#include "platform/units.h"

namespace bedplate::kvd {

class KvBalance {
 public:
  // A shard evicts for so long after its last eviction.
  static constexpr uint64_t kEvictsNs = 60 * kNsPerSecond;

  // A shard with `memory_bytes` for items. Before the seal: it allocates. Ownership: `counters`
  // outlive this.
  void add(Counters& counters, uint64_t memory_bytes) {
    shards_.push_back({&counters, memory_bytes});
  }
  // `now_ns`: monotonic_ns().
  void look(uint64_t now_ns) noexcept;

 private:
  struct Shard {
    Counters* counters;
    uint64_t memory_bytes;
    uint64_t evictions = 0;   // at the last look
    uint64_t evicted_ns = 0;  // when they last grew; 0: they did not
    bool evicts = false;

    uint64_t unused_bytes() const noexcept;
  };

  std::vector<Shard> shards_;
};

}  // namespace bedplate::kvd
