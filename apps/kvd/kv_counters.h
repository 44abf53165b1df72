// kvd's counters. Its shard writes them, any thread or process reads them; describe() defines them.
// Zeroed memory is a valid set. Invariant: gets = hits + misses, except between the two additions.
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
  KeyedCacheCounters cache;
  StreamServerCounters clients;
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
  table.counter("gets", c.gets, "requests", "Keys that were asked for.").at_a_glance("requests");
  table.counter("hits", c.hits, "requests", "Keys that were asked for and had a value.");
  table.counter("misses", c.misses, "requests", "Keys that were asked for and had none.");
  table.counter("sets", c.sets, "requests", "Values that came whole, whatever became of them.")
      .at_a_glance("requests");
  table.counter("stored", c.stored, "items", "Items that were stored, or stored anew.");
  table
      .counter("too_large", c.too_large, "requests",
               "Values that were refused: longer than value_max_bytes.")
      .sign_as_it_grows("values are refused for their length, {too_large} by now: raise "
                        "value_max_bytes, or have clients send shorter ones");
  table
      .counter("no_memory", c.no_memory, "requests",
               "Values that were refused: clients held so much that nothing could be evicted.")
      .sign_as_it_grows("values find no room, {no_memory} by now: raise cache_bytes, or look for "
                        "clients that take none of their answers");
  table.counter("flushes", c.flushes, "requests", "flush_all.").at_a_glance("requests");
  table.counter("delete_hits", c.delete_hits, "requests", "Deletions of what was there.")
      .at_a_glance("requests");
  table.counter("delete_misses", c.delete_misses, "requests", "Deletions of what was not there.")
      .at_a_glance("requests");
  table.counter("incr_hits", c.incr_hits, "requests", "incr of a number that was there.")
      .at_a_glance("requests");
  table.counter("incr_misses", c.incr_misses, "requests", "incr of what was not there.")
      .at_a_glance("requests");
  table.counter("decr_hits", c.decr_hits, "requests", "decr of a number that was there.")
      .at_a_glance("requests");
  table.counter("decr_misses", c.decr_misses, "requests", "decr of what was not there.")
      .at_a_glance("requests");
  table.counter("cas_hits", c.cas_hits, "requests", "cas that stored.");
  table.counter("cas_misses", c.cas_misses, "requests", "cas of what was not there.");
  table.counter("cas_badval", c.cas_badval, "requests", "cas of what had changed meanwhile.")
      .no_sign("this is what cas is for: its client reads the value and tries again");
  table.counter("touch_hits", c.touch_hits, "requests", "touch of what was there.")
      .at_a_glance("requests");
  table.counter("touch_misses", c.touch_misses, "requests", "touch of what was not there.")
      .at_a_glance("requests");
  describe(table, c.cache, "cache_bytes");
  describe(table, c.clients, "max_connections");
  table
      .counter("messages_dropped", c.messages_dropped, "messages",
               "Made no sense, or more waited for loans to come back than there is room for.")
      .sign_as_it_grows(
          "questions by message are dropped, {messages_dropped} by now: have those who ask give "
          "back what is lent to them sooner, and be of this build");
  table
      .histogram("get_ns", c.get_ns, "ns",
                 "A get, from its last byte's receipt to its answer being handed to the socket.")
      .at_a_glance("p99");
  table
      .histogram("set_ns", c.set_ns, "ns",
                 "The same of a set, add, replace, append, prepend or cas.")
      .at_a_glance("p99");
  table.histogram("other_ns", c.other_ns, "ns", "The same of any other command.")
      .at_a_glance("p99");
}

}  // namespace bedplate::kvd
