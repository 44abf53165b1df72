// What kvd counts: written by its shard, read by `bedplate stats`.
#pragma once

#include "apps/boot/counter_table.h"
#include "platform/cache_line.h"

namespace bedplate::kvd {

struct alignas(kCacheLineBytes) Counters {
  Counter gets;
  Counter hits;
  Counter misses;
  Counter sets;
  Counter evictions;
  Counter items;
  Counter bytes;
  Counter connections_open;
  Counter connections_total;
  Counter connections_refused;
  Counter messages_dropped;
  // From its last byte's receipt to its answer being handed to the socket.
  Histogram get_ns;
  Histogram set_ns;
  Histogram other_ns;
};

inline void describe(CounterTable& table, Counters& c) {
  table.counter("gets", c.gets, "requests", "Keys that were asked for.");
  table.counter("hits", c.hits, "requests", "Keys that were asked for and had a value.");
  table.counter("misses", c.misses, "requests", "Keys that were asked for and had none.");
  table.counter("sets", c.sets, "requests", "Values that came whole, whatever became of them.");
  table.counter("evictions", c.evictions, "items", "Forgotten to make room for others.");
  table.gauge("items", c.items, "items", "What is kept now.");
  table.gauge("bytes", c.bytes, "bytes", "What the items take of the cache.");
  table.gauge("connections_open", c.connections_open, "connections", "Clients that are connected.");
  table.counter("connections_total", c.connections_total, "connections",
                "Clients that have connected.");
  table.counter("connections_refused", c.connections_refused, "connections",
                "Closed at once: there were max_connections, or it drains.");
  table.counter("messages_dropped", c.messages_dropped, "messages",
                "Made no sense, or more waited for loans to come back than there is room for.");
  table.histogram("get_ns", c.get_ns, "ns",
                  "A get, from its last byte's receipt to its answer being handed to the socket.");
  table.histogram("set_ns", c.set_ns, "ns",
                  "The same of a set, add, replace, append, prepend or cas.");
  table.histogram("other_ns", c.other_ns, "ns", "The same of any other command.");
}

}  // namespace bedplate::kvd
