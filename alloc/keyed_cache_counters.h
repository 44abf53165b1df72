// The counters of a KeyedCache. The cache's thread writes them; the cache's service plans them.
#pragma once

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

struct KeyedCacheCounters {
  Counter evictions;          // live items removed for space
  Counter items;              // items kept now, also expired ones not yet found
  Counter bytes;              // memory of these items, in whole cache lines
  Counter peak_bytes;         // the most of `bytes`; all memory, once an item was evicted
  Counter evicted_unfetched;  // evicted items that are not is_fetched
  Counter reclaimed;          // expired items removed for space, not by find()
  Counter expired_unfetched;  // reclaimed items that are not is_fetched
};

// The describe() of the struct that contains these counters calls this. `key` is the configuration
// key that sets the cache's memory, in the service's table (`bedplate plan --explain`), or nullptr.
void describe(CounterTable& table, const KeyedCacheCounters& counters, const char* key = nullptr);

}  // namespace bedplate
