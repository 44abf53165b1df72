#include "apps/kvd/kv_balance.h"

#include <algorithm>

namespace bedplate::kvd {

// The most memory that another shard has free, if it is over a quarter of its memory; else 0.
uint64_t KvBalance::free_beside(const Shard& shard) const noexcept {
  uint64_t most = 0;
  for (const Shard& each : shards_) {
    const uint64_t used = each.counters->cache.bytes.read();
    const uint64_t free_bytes = each.memory_bytes - std::min(used, each.memory_bytes);
    if (&each != &shard && free_bytes > each.memory_bytes / 4) most = std::max(most, free_bytes);
  }
  return most;
}

void KvBalance::look(uint64_t now_ns) noexcept {
  for (Shard& each : shards_) {
    const uint64_t evictions = each.counters->cache.evictions.read();
    if (evictions != each.evictions) each.evicted_ns = now_ns;
    each.evictions = evictions;
    const bool evicts = each.evicted_ns != 0 && now_ns - each.evicted_ns < kEvictsNs;
    const uint64_t free_bytes = evicts ? free_beside(each) : 0;
    Counter& gauge = each.counters->free_elsewhere_bytes;
    if (gauge.read() != free_bytes) gauge.set(free_bytes);
  }
}

}  // namespace bedplate::kvd
