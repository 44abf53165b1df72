// The counters of a KeyedCache. Written by the cache's thread; the service that owns it plans them.
#pragma once

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

struct KeyedCacheCounters {
  Counter evictions;          // live items removed for space
  Counter items;              // items kept now
  Counter bytes;              // memory of the items kept now
  Counter peak_bytes;         // the most of `bytes`; all memory, once an item was evicted
  Counter evicted_unfetched;  // evicted items that are not is_fetched
  Counter reclaimed;          // expired items removed for space
  Counter expired_unfetched;  // reclaimed items that are not is_fetched
};

// For the describe() of the struct that contains these counters. `key`: the key of the service's
// table that sets the cache's memory (`bedplate plan --explain`); nullptr: none.
void describe(CounterTable& table, const KeyedCacheCounters& counters, const char* key = nullptr);

}  // namespace bedplate
