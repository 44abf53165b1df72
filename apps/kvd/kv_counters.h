// kvd's counters, a set for each of its shards. Its shard writes them, any thread or process reads
// them; describe() defines them. A command counts where its key is owned, a client where it is
// connected. Zeroed memory is a valid set. Invariant: gets = hits + misses, except between the two
// additions.
#pragma once

#include "alloc/keyed_cache_counters.h"
#include "platform/counter_table.h"
#include "transport/sockets/stream_server.h"

namespace bedplate::kvd {

struct alignas(kCacheLineBytes) Counters {
  Counter gets;
  Counter hits;
  Counter misses;
  Counter sets;
  Counter stored;
  Counter too_large;
  Counter no_memory;
  Counter flushes;
  Counter delete_hits;
  Counter delete_misses;
  Counter incr_hits;
  Counter incr_misses;
  Counter decr_hits;
  Counter decr_misses;
  Counter cas_hits;
  Counter cas_misses;
  Counter cas_badval;
  Counter touch_hits;
  Counter touch_misses;
  Counter crossed;
  Counter crossings;
  Counter unused_bytes;  // written by the main thread
  KeyedCacheCounters cache;
  StreamServerCounters clients;
  Counter binary_refused;
  Counter messages_dropped;
  Histogram get_ns;
  Histogram set_ns;
  Histogram other_ns;

  // Counts one key of a get. Threads: the shard's.
  void count_get(bool is_hit) noexcept {
    gets.add(1);
    (is_hit ? hits : misses).add(1);
  }
};

inline void describe(CounterTable& table, Counters& c) {
  table.counter("gets", c.gets, "requests", "Requested keys.").at_a_glance("requests");
  table.counter("hits", c.hits, "requests", "Requested keys that had a value.");
  table.counter("misses", c.misses, "requests", "Requested keys that had no value.");
  table.counter("sets", c.sets, "requests", "Values received completely, stored or not.")
      .at_a_glance("requests");
  table.counter("stored", c.stored, "items", "Stored items, new or replaced.");
  table
      .counter("too_large", c.too_large, "requests", "Refused values: longer than value_max_bytes.")
      .alert_as_it_grows(
          "{too_large} values were too long and refused so far: raise value_max_bytes, or have "
          "clients send shorter ones");
  table
      .counter("no_memory", c.no_memory, "requests",
               "Refused values: nothing could be evicted, because clients were being sent so much.")
      .alert_as_it_grows(
          "{no_memory} values were refused for lack of memory so far: raise cache_bytes, or "
          "find clients that do not read their answers");
  table.counter("flushes", c.flushes, "requests", "Executed flush_all commands.")
      .at_a_glance("requests");
  table.counter("delete_hits", c.delete_hits, "requests", "Deletions of existing items.")
      .at_a_glance("requests");
  table
      .counter("delete_misses", c.delete_misses, "requests",
               "Deletions of items that did not exist.")
      .at_a_glance("requests");
  table.counter("incr_hits", c.incr_hits, "requests", "incr of an existing number.")
      .at_a_glance("requests");
  table.counter("incr_misses", c.incr_misses, "requests", "incr of an item that did not exist.")
      .at_a_glance("requests");
  table.counter("decr_hits", c.decr_hits, "requests", "decr of an existing number.")
      .at_a_glance("requests");
  table.counter("decr_misses", c.decr_misses, "requests", "decr of an item that did not exist.")
      .at_a_glance("requests");
  table.counter("cas_hits", c.cas_hits, "requests", "cas that stored its value.");
  table.counter("cas_misses", c.cas_misses, "requests", "cas of an item that did not exist.");
  table.counter("cas_badval", c.cas_badval, "requests", "cas of an item that had changed.")
      .no_alert("cas exists for this case: its client reads the value and tries again");
  table
      .counter("touch_hits", c.touch_hits, "requests",
               "touch, or gat of a key, of an existing item.")
      .at_a_glance("requests");
  table
      .counter("touch_misses", c.touch_misses, "requests",
               "touch, or gat of a key, of an item that did not exist.")
      .at_a_glance("requests");
  table.counter("crossed", c.crossed, "requests",
                "Commands of clients of this shard, or keys of gets, for another shard.");
  table.counter(
      "crossings", c.crossings, "questions",
      "Questions to other shards with these commands; one has all of a client at a time.");
  table
      .gauge(
          "unused_bytes", c.unused_bytes, "bytes",
          "Cache memory free on this shard, if that is over a quarter of it, while another shard "
          "evicts items.")
      .alert_from(1, "a shard evicts items while {unused_bytes} of the cache of others are free: "
                     "raise cache_bytes, or name fewer shards");
  describe(table, c.cache, "cache_bytes");
  describe(table, c.clients, "max_connections");
  table
      .counter("binary_refused", c.binary_refused, "connections",
               "Connections closed, after one line of text: the client spoke memcached's binary "
               "protocol.")
      .alert_as_it_grows(
          "{binary_refused} clients spoke memcached's binary protocol so far, which kvd lacks: "
          "set them to the text protocol");
  table
      .counter("messages_dropped", c.messages_dropped, "messages",
               "Messages dropped: malformed, or too many waited for returned loans.")
      .alert_as_it_grows(
          "{messages_dropped} requests by message were dropped so far: their senders must "
          "return loans sooner, and be of this build");
  table
      .histogram(
          "get_ns", c.get_ns, "ns",
          "The time of a get, from receipt of its last byte until its answer is handed to the "
          "socket.")
      .at_a_glance("p99");
  table
      .histogram("set_ns", c.set_ns, "ns",
                 "The same for a set, add, replace, append, prepend or cas.")
      .at_a_glance("p99");
  table.histogram("other_ns", c.other_ns, "ns", "The same for any other command.")
      .at_a_glance("p99");
}

}  // namespace bedplate::kvd
