// blockd's counters: its shards write them, `bedplate stats` reads them. The describe() functions
// at the end give each one's unit and meaning. They lie in the counters file, or in a test's own
// memory; zeroed memory is a valid set. Threads: the shard named at each struct writes, any thread
// or process reads.
#pragma once

#include "apps/blockd/nbd_request_datapath.h"
#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/counter_table.h"
#include "platform/histogram.h"
#include "platform/units.h"

namespace bedplate {

// Counts the requests of all connections, or those for one volume.
struct RequestCounters {
  Counter requests_read;
  Counter requests_write;
  Counter requests_flush;
  Counter requests_trim;
  Counter requests_write_zeroes;
  Counter requests_block_status;
  Counter read_bytes;
  Counter written_bytes;
};

// Counts an accepted request. Cost: an addition or two.
inline void count_request(RequestCounters& counters, const nbd::Request& request) noexcept {
  switch (request.command) {
    case nbd::Command::kRead:
      counters.requests_read.add(1);
      return counters.read_bytes.add(request.length);
    case nbd::Command::kWrite:
      counters.requests_write.add(1);
      return counters.written_bytes.add(request.length);
    case nbd::Command::kTrim: return counters.requests_trim.add(1);
    case nbd::Command::kWriteZeroes: return counters.requests_write_zeroes.add(1);
    case nbd::Command::kBlockStatus: return counters.requests_block_status.add(1);
    default: return counters.requests_flush.add(1);
  }
}

// Written by the shard of the connections.
struct alignas(kCacheLineBytes) ConnectionCounters : RequestCounters {
  Counter connections_open;
  Counter connections_peak;  // the most that were open at once
  Counter connections_total;
  Counter connections_refused;      // over max_connections
  Counter connections_turned_away;  // blockd was told to take none, or drains
  Counter handshake_timeouts;
  Counter protocol_errors;     // disconnected because of what the client sent
  Counter broken_connections;  // the socket failed, or the client left in the middle of something
  Counter requests_peak;       // of one connection: the most in flight at once
  Counter requests_refused;    // answered with an error
  // Times from the request's header to its answer being handed to the socket; a write's payload is
  // received in between.
  Histogram read_ns;
  Histogram write_ns;
  Histogram flush_ns;
  Histogram trim_ns;
  Histogram write_zeroes_ns;
  Histogram block_status_ns;
};

// Adds the time that a request took. A refused one may have a command without a histogram.
inline void count_time(ConnectionCounters& counters, nbd::Command command, uint64_t ns) noexcept {
  switch (command) {
    case nbd::Command::kRead: return counters.read_ns.add(ns);
    case nbd::Command::kWrite: return counters.write_ns.add(ns);
    case nbd::Command::kFlush: return counters.flush_ns.add(ns);
    case nbd::Command::kTrim: return counters.trim_ns.add(ns);
    case nbd::Command::kWriteZeroes: return counters.write_zeroes_ns.add(ns);
    case nbd::Command::kBlockStatus: return counters.block_status_ns.add(ns);
    default: return;
  }
}

// One volume as its clients see it; written by the shard of the connections.
struct alignas(kCacheLineBytes) VolumeRequestCounters : RequestCounters {
  Counter requests_in_flight;
  Histogram request_ns;  // as those of ConnectionCounters, of any kind
};

// One volume. Its shard writes all but `requests`.
struct alignas(kCacheLineBytes) VolumeCounters {
  Counter grants;   // destinations given to writes that are received in place
  Counter commits;  // writes whose payload arrived whole
  Counter aborts;   // writes whose client left in the middle
  VolumeRequestCounters requests;
};

// One volume on a store that is not memory. Its shard writes all but the last.
struct alignas(kCacheLineBytes) StoreCounters {
  Counter operations;        // under way
  Counter operations_peak;   // the most at once
  Counter operations_max;    // the limit
  Counter requests_waiting;  // for an operation to end, or for a buffer
  Counter buffer_bytes;      // taken
  Counter buffer_peak_bytes;
  Counter buffer_max_bytes;
  Counter errors;
  Counter has_failed_flush;
  Counter operations_ended;
  Counter silent_ns;  // by the control thread (StoreSilence)
};

// The headings of the columns that show requests and bytes.
struct RequestColumns {
  const char* requests;
  const char* read;
  const char* written;
};
inline void describe_requests(CounterTable& table, RequestCounters& c,
                              const RequestColumns& columns) {
  table.counter("requests_read", c.requests_read, "requests", "Reads.")
      .at_a_glance(columns.requests);
  table.counter("requests_write", c.requests_write, "requests", "Writes.")
      .at_a_glance(columns.requests);
  table.counter("requests_flush", c.requests_flush, "requests", "Flushes.")
      .at_a_glance(columns.requests);
  table.counter("requests_trim", c.requests_trim, "requests", "Trims.")
      .at_a_glance(columns.requests);
  table.counter("requests_write_zeroes", c.requests_write_zeroes, "requests", "Writes of zeroes.")
      .at_a_glance(columns.requests);
  table
      .counter("requests_block_status", c.requests_block_status, "requests",
               "Questions for which parts have data.")
      .at_a_glance(columns.requests);
  table.counter("read_bytes", c.read_bytes, "bytes", "Sent to clients.").at_a_glance(columns.read);
  table.counter("written_bytes", c.written_bytes, "bytes", "Received from clients.")
      .at_a_glance(columns.written);
}

inline void describe(CounterTable& table, ConnectionCounters& c) {
  table.gauge("connections_open", c.connections_open, "connections", "Clients that are connected.")
      .at_a_glance("clients");
  table
      .gauge("connections_peak", c.connections_peak, "connections",
             "The most clients that were connected at once.")
      .peak_of("max_connections", "One client more than that is closed at once.");
  table.counter("connections_total", c.connections_total, "connections",
                "Clients that have connected.");
  table
      .counter("connections_refused", c.connections_refused, "connections",
               "Closed at once: there were max_connections.")
      .refusals_of("max_connections")
      .sign_as_it_grows(
          "clients are sent away, {connections_refused} by now: end those that are not "
          "needed, or raise max_connections");
  table
      .counter("connections_turned_away", c.connections_turned_away, "connections",
               "Closed at once: no new clients are taken (blockd.listen, a drain), or the system "
               "took no more.")
      .sign_as_it_grows(
          "clients are turned away, {connections_turned_away} by now: it drains, or blockd.listen "
          "has said so, or the system took no more, as the log says");
  table
      .counter("handshake_timeouts", c.handshake_timeouts, "connections",
               "Closed: the client took too long to negotiate.")
      .sign_as_it_grows(
          "clients do not end their negotiation, {handshake_timeouts} by now: look at who connects "
          "here, and at the network between");
  table
      .counter("protocol_errors", c.protocol_errors, "connections",
               "Closed because of what the client sent.")
      .sign_as_it_grows(
          "clients send what is no NBD, {protocol_errors} by now: the log says what; mend or "
          "replace the client");
  table
      .counter("broken_connections", c.broken_connections, "connections",
               "The socket failed, or the client left in the middle of something.")
      .sign_as_it_grows(
          "connections break, {broken_connections} by now: look at the clients' logs, and at the "
          "network between");
  table
      .gauge("requests_peak", c.requests_peak, "requests",
             "The most requests of one connection that were in flight at once.")
      .peak_of("requests_per_connection", "A client's further requests wait in its socket.");
  describe_requests(table, c, {"requests", "sent", "received"});
  table.counter("requests_refused", c.requests_refused, "requests", "Answered with an error.")
      .sign_as_it_grows(
          "requests are answered with an error, {requests_refused} by now: look at the volumes' "
          "stores, else at what clients ask (past the end, a read-only volume)");
  const auto times = [&table](const char* name, const Histogram& of, const char* help) {
    table.histogram(name, of, "ns", help).at_a_glance("p99");
  };
  times("read_ns", c.read_ns,
        "A read, from its header's receipt to its answer being handed to the socket.");
  times("write_ns", c.write_ns, "The same of a write; its payload is received in between.");
  times("flush_ns", c.flush_ns, "The same of a flush.");
  times("trim_ns", c.trim_ns, "The same of a trim.");
  times("write_zeroes_ns", c.write_zeroes_ns, "The same of a write of zeroes.");
  times("block_status_ns", c.block_status_ns, "The same of a block status.");
}

inline void describe(CounterTable& table, VolumeCounters& c) {
  table.counter("grants", c.grants, "requests",
                "Places given to writes that are received in place.");
  table.counter("commits", c.commits, "requests", "Writes whose payload has arrived whole.");
  table.counter("aborts", c.aborts, "requests", "Writes whose client left in the middle.")
      .no_sign("broken_connections has their clients");
  describe_requests(table, c.requests, {"operations", "bytes", "bytes"});
  table
      .histogram("request_ns", c.requests.request_ns, "ns",
                 "Any of them, from its header's receipt to its answer being handed to the socket.")
      .at_a_glance("p99");
  table
      .gauge("requests_in_flight", c.requests.requests_in_flight, "requests",
             "Received, and not answered in full yet.")
      .at_a_glance("queue");
}

inline void describe(CounterTable& table, StoreCounters& c) {
  table.gauge("operations", c.operations, "operations", "Under way in the store.");
  table
      .gauge("operations_peak", c.operations_peak, "operations",
             "The most that were under way in the store at once.")
      .peak_of("volume.operations", "Requests wait for an operation to end.");
  table.gauge("operations_max", c.operations_max, "operations",
              "The store is given no more than that at once; further requests wait.");
  table.gauge("requests_waiting", c.requests_waiting, "requests",
              "Wait for an operation of the store to end, or for a buffer.");
  table.gauge("buffer_bytes", c.buffer_bytes, "bytes", "Memory of its buffers that is taken.");
  table
      .gauge("buffer_peak_bytes", c.buffer_peak_bytes, "bytes",
             "The most memory of its buffers that was taken at once.")
      .peak_of("volume.buffer_bytes", "Requests wait for a buffer, the large ones for longest.");
  table.gauge("buffer_max_bytes", c.buffer_max_bytes, "bytes",
              "All of its buffers; requests that find none free wait.");
  table.counter("errors", c.errors, "requests", "Requests that the store has failed.")
      .sign_as_it_grows("its store {place} fails requests, {errors} by now");
  table.counter("operations_ended", c.operations_ended, "operations", "Answered by the store.");
  table
      .gauge("silent_ns", c.silent_ns, "ns",
             "How long the store has ended none of those under way; 0: none, or it does.")
      .sign_from(5 * kNsPerSecond,
                 "its store {place} has answered nothing for {silent_ns} (operations that wait: "
                 "{operations})");
  table
      .boolean("has_failed_flush", c.has_failed_flush,
               "A flush has failed: FLUSH and FUA answer EIO until the volume is opened anew.")
      .sign_from(1, "a flush of {place} has failed, so what was written may be lost: look at the "
                    "drive, then open the volume anew");
}

}  // namespace bedplate
