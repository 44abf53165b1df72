#include "apps/kvd/kv_balance.h"

#include <algorithm>

namespace bedplate::kvd {

// The memory that it has free, if that is over a quarter; else 0.
uint64_t KvBalance::Shard::unused_bytes() const noexcept {
  const uint64_t free_bytes = memory_bytes - std::min(counters->cache.bytes.read(), memory_bytes);
  return free_bytes > memory_bytes / 4 ? free_bytes : 0;
}

void KvBalance::look(uint64_t now_ns) noexcept {
  uint32_t evict_count = 0;
  for (Shard& each : shards_) {
    const uint64_t evictions = each.counters->cache.evictions.read();
    if (evictions != each.evictions) each.evicted_ns = now_ns;
    each.evictions = evictions;
    each.evicts = each.evicted_ns != 0 && now_ns - each.evicted_ns < kEvictsNs;
    if (each.evicts) ++evict_count;
  }
  for (const Shard& each : shards_) {
    const bool others_evict = evict_count > (each.evicts ? 1U : 0U);
    const uint64_t bytes = others_evict ? each.unused_bytes() : 0;
    Counter& gauge = each.counters->unused_bytes;
    if (gauge.read() != bytes) gauge.set(bytes);
  }
}

}  // namespace bedplate::kvd
