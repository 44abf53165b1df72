// Descriptions of the counters of parts that services are made of: the describe() of a service's
// own struct calls these for the parts in it, describe(table, counters.clients). Threads: any; the
// parts' shards go on counting meanwhile.
#pragma once

#include "alloc/keyed_cache_datapath.h"
#include "platform/counter_table.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

// `key`, here and below: the key of the service's table that they are planned by (`bedplate plan
// --explain`); nullptr: none.
inline void describe(CounterTable& table, const KeyedCacheCounters& counters,
                     const char* key = nullptr) {
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

inline void describe(CounterTable& table, const StreamServerCounters& counters,
                     const char* key = nullptr) {
  table
      .gauge("connections_open", counters.connections_open, "connections",
             "Clients that are connected.")
      .at_a_glance("clients");
  CounterDescription& peak =
      table.gauge("connections_peak", counters.connections_peak, "connections",
                  "The most clients that were connected at once.");
  if (key != nullptr) peak.peak_of(key, "One client more than that is closed at once.");
  table.counter("connections_total", counters.connections_total, "connections",
                "Clients that have connected.");
  CounterDescription& refused =
      table.counter("connections_refused", counters.connections_refused, "connections",
                    "Closed at once: there were as many as planned, or it drains.");
  if (key != nullptr) refused.refusals_of(key);
  refused.sign_as_it_grows(
      "clients are sent away, {connections_refused} by now: end those that are not needed, or have "
      "more of them planned (max_connections)");
  table
      .counter("connections_foreign", counters.connections_foreign, "connections",
               "Closed: what came is another protocol, such as HTTP; nothing of it was obeyed.")
      .sign_as_it_grows("{connections_foreign} of its clients spoke another protocol, as a page in "
                        "somebody's browser does: the log says from where");
  table.counter("received_bytes", counters.received_bytes, "bytes", "Received from clients.")
      .at_a_glance("received");
  table.counter("sent_bytes", counters.sent_bytes, "bytes", "Sent to clients.").at_a_glance("sent");
}

}  // namespace bedplate
