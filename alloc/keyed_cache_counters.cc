#include "alloc/keyed_cache_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, const KeyedCacheCounters& counters, const char* key) {
  CounterDescription& evictions =
      table.counter("evictions", counters.evictions, "items", "Forgotten to make room for others.");
  if (key != nullptr) evictions.refusals_of(key);
  evictions.no_sign("a cache that is full does so");
  table.gauge("items", counters.items, "items", "Items that are kept now.");
  table.gauge("bytes", counters.bytes, "bytes", "Memory of the cache that the items take.");
  CounterDescription& peak =
      table.gauge("peak_bytes", counters.peak_bytes, "bytes",
                  "The most of that; all of the cache, once something was forgotten for room.");
  if (key != nullptr) peak.peak_of(key, "The items that are used least are forgotten sooner.");
  table.counter("evicted_unfetched", counters.evicted_unfetched, "items",
                "Evictions of items that nobody has read.");
  table.counter("reclaimed", counters.reclaimed, "items",
                "Items whose time was over when their room was given to others.");
  table.counter("expired_unfetched", counters.expired_unfetched, "items",
                "Reclaimed items that nobody has read.");
}

}  // namespace bedplate
