// The counters of a KeyedCache. Written by the cache's thread; the service that owns it plans them.
#pragma once

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

struct KeyedCacheCounters {
  Counter evictions;          // forgotten to make room for others
  Counter items;              // what is kept now
  Counter bytes;              // of the memory, for what is kept now
  Counter peak_bytes;         // the most of that; all of it, once something was forgotten for room
  Counter evicted_unfetched;  // of the evictions, those of items that are not is_fetched
  Counter reclaimed;          // whose time was over, when their room was wanted
  Counter expired_unfetched;  // of these, those that are not is_fetched
};

// For the describe() of the struct that they are in. `key`: the key of the service's table that the
// cache's memory is planned by (`bedplate plan --explain`); nullptr: none.
void describe(CounterTable& table, const KeyedCacheCounters& counters, const char* key = nullptr);

}  // namespace bedplate
