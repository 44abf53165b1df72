#include "alloc/keyed_cache_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, const KeyedCacheCounters& counters, const char* key) {
  CounterDescription& evictions = table.counter("evictions", counters.evictions, "items",
                                                "Items evicted to make room for others.");
  if (key != nullptr) evictions.refusals_of(key);
  evictions.no_alert("a full cache evicts items");
  table.gauge("items", counters.items, "items", "Items stored now.");
  table.gauge("bytes", counters.bytes, "bytes", "Cache memory in use by items.");
  CounterDescription& peak =
      table.gauge("peak_bytes", counters.peak_bytes, "bytes",
                  "The peak of cache memory in use; all of it, once an item was evicted.");
  if (key != nullptr) peak.peak_of(key, "The least used items are evicted sooner.");
  table.counter("evicted_unfetched", counters.evicted_unfetched, "items",
                "Evictions of items that nobody has read.");
  table.counter("reclaimed", counters.reclaimed, "items", "Expired items whose memory was reused.");
  table.counter("expired_unfetched", counters.expired_unfetched, "items",
                "Reclaimed items that nobody has read.");
}

}  // namespace bedplate
