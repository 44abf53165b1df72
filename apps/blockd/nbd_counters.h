// Counters of NBD connections, for `bedplate stats`. describe() gives the unit and the meaning of
// each. They lie in the counters file, or in a test's own memory; zeroed memory is a valid set.
// Threads: the shard of the connections writes, any thread or process reads. With several such
// shards each has its own.
#pragma once

#include "apps/blockd/nbd_request_datapath.h"
#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/counter_table.h"
#include "platform/histogram.h"
#include "transport/sockets/stream_server_counters.h"

namespace bedplate::nbd {

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
inline void count_request(RequestCounters& counters, const Request& request) noexcept {
  switch (request.command) {
    case Command::kRead:
      counters.requests_read.add(1);
      return counters.read_bytes.add(request.length);
    case Command::kWrite:
      counters.requests_write.add(1);
      return counters.written_bytes.add(request.length);
    case Command::kTrim: return counters.requests_trim.add(1);
    case Command::kWriteZeroes: return counters.requests_write_zeroes.add(1);
    case Command::kBlockStatus: return counters.requests_block_status.add(1);
    default: return counters.requests_flush.add(1);
  }
}

// All connections of a server on one shard.
struct alignas(kCacheLineBytes) ConnectionCounters : RequestCounters, AcceptorCounters {
  Counter connections_turned_away;  // blockd accepts no clients, drains, or fails to open one
  Counter handshake_timeouts;
  Counter protocol_errors;     // connections closed because the client broke the protocol
  Counter broken_connections;  // the socket failed, or the client left during a request or the
                               // handshake
  Counter requests_peak;       // the most in flight at once on one connection
  Counter requests_refused;    // check() refused them; an error of the store counts elsewhere
  // The time from the receipt of a request's header until its answer is handed to the socket. For a
  // write it includes the receipt of the payload.
  Histogram read_ns;
  Histogram write_ns;
  Histogram flush_ns;
  Histogram trim_ns;
  Histogram write_zeroes_ns;
  Histogram block_status_ns;
};

// A shard of connections, if there are several.
struct LaneCounters {
  Counter crossings;
};

inline void describe(CounterTable& table, LaneCounters& c) {
  table.counter("crossings", c.crossings, "requests",
                "Requests that came back from another shard, that of their volume; once for each "
                "of their trips.");
}

// Adds the time that a request took. A refused request may have a command without a histogram.
inline void count_time(ConnectionCounters& counters, Command command, uint64_t ns) noexcept {
  switch (command) {
    case Command::kRead: return counters.read_ns.add(ns);
    case Command::kWrite: return counters.write_ns.add(ns);
    case Command::kFlush: return counters.flush_ns.add(ns);
    case Command::kTrim: return counters.trim_ns.add(ns);
    case Command::kWriteZeroes: return counters.write_zeroes_ns.add(ns);
    case Command::kBlockStatus: return counters.block_status_ns.add(ns);
    default: return;
  }
}

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
               "Block status requests.")
      .at_a_glance(columns.requests);
  table.counter("read_bytes", c.read_bytes, "bytes", "Bytes sent to clients.")
      .at_a_glance(columns.read);
  table.counter("written_bytes", c.written_bytes, "bytes", "Bytes received from clients.")
      .at_a_glance(columns.written);
}

inline void describe(CounterTable& table, ConnectionCounters& c) {
  describe_acceptor(table, c, "max_connections",
                    "Connections closed at once: max_connections were open.");
  table
      .counter(
          "connections_turned_away", c.connections_turned_away, "connections",
          "Connections closed at once: no new clients are accepted (blockd.listen, a drain), or "
          "the kernel refused more.")
      .alert_as_it_grows("{connections_turned_away} clients were turned away so far: it drains, "
                         "or blockd.listen said so, or the kernel refused more, as the log says");
  table
      .counter("handshake_timeouts", c.handshake_timeouts, "connections",
               "Connections closed: the client took too long to negotiate.")
      .alert_as_it_grows(
          "{handshake_timeouts} clients did not finish their negotiation so far: check which "
          "programs connect here, and the network between");
  table
      .counter("protocol_errors", c.protocol_errors, "connections",
               "Connections closed: the client violated the protocol.")
      .alert_as_it_grows(
          "{protocol_errors} clients violated the NBD protocol so far: the log says how; "
          "correct or replace the client");
  table
      .counter("broken_connections", c.broken_connections, "connections",
               "Connections that failed, or whose client left during a request.")
      .alert_as_it_grows(
          "{broken_connections} connections broke so far: check the clients' logs, and the "
          "network between");
  table
      .gauge("requests_peak", c.requests_peak, "requests",
             "The most requests in flight at once on one connection.")
      .peak_of("requests_per_connection", "A client's further requests wait in its socket.");
  describe_requests(table, c, {"requests", "sent", "received"});
  table
      .counter("requests_refused", c.requests_refused, "requests",
               "Requests refused before they reach the store: past the end, to a read-only volume.")
      .alert_as_it_grows(
          "{requests_refused} requests of clients were refused so far: check the clients, which "
          "request bytes past a volume's end, or write to a read-only volume");
  const auto times = [&table](const char* name, const Histogram& of, const char* help) {
    table.histogram(name, of, "ns", help).at_a_glance("p99");
  };
  times("read_ns", c.read_ns,
        "The time of a read, from receipt of its header until its answer is handed to the socket.");
  times("write_ns", c.write_ns, "The same for a write, including receipt of its payload.");
  times("flush_ns", c.flush_ns, "The same for a flush.");
  times("trim_ns", c.trim_ns, "The same for a trim.");
  times("write_zeroes_ns", c.write_zeroes_ns, "The same for a write of zeroes.");
  times("block_status_ns", c.block_status_ns, "The same for a block status.");
}

}  // namespace bedplate::nbd
