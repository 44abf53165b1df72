// The session of one connection, without its socket: received bytes go in, bytes to send come out.
// A ConnectionThread calls it, and knows no protocol.
//
// Threads: the thread of the connections; ConnectionThread::stop() calls closed() after that thread
// has ended. No function blocks or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "platform/counter_table.h"

namespace bedplate {

// The counters of all connections of one thread.
struct ServedCounters {
  Counter timeouts;
  Counter connections;
  Counter connections_peak;  // the most open at once
  Counter turned_away;
  Counter sent_bytes;
};
// `key`: the key of the service's table that sets the number of connections (`bedplate plan
// --explain`); nullptr: none.
inline void describe(CounterTable& table, ServedCounters& counters, const char* key = nullptr) {
  table
      .counter("timeouts", counters.timeouts, "connections",
               "Connections closed because they were idle for too long.")
      .no_alert("idle clients are disconnected by it, too");
  table.gauge("connections", counters.connections, "connections", "Open connections.")
      .at_a_glance("clients");
  CounterDescription& peak = table.gauge("connections_peak", counters.connections_peak,
                                         "connections", "The most connections open at once.");
  if (key != nullptr) {
    peak.peak_of(key, "A further client is refused, or replaces an idle one.");
  }
  CounterDescription& turned_away =
      table.counter("turned_away", counters.turned_away, "connections",
                    "Connections closed or refused because there were too many.");
  if (key != nullptr) turned_away.refusals_of(key);
  turned_away.alert_as_it_grows(
      "{turned_away} clients were turned away so far, because too many are connected: end some, "
      "or raise max_connections, if the service has it");
  table.counter("sent_bytes", counters.sent_bytes, "bytes", "Bytes sent to clients.")
      .at_a_glance("sent");
}

// A session serves connections one after another.
class ConnectionSession {
 public:
  virtual ~ConnectionSession() = default;

  // Begins a new connection. The session does not read, write or close `fd`. Before the first
  // open(), only is_held() is called.
  virtual void open(int fd) noexcept = 0;
  // The connection has ended: only is_held() is called before the next open().
  virtual void closed() noexcept {}
  // The client has a certificate that entitles it to requests. Called at most once in a connection.
  virtual void peer_is_certified() noexcept {}
  // The connection is a standing line (standing_line.h), whose users do not notice a new
  // connection: the session continues at once, with or without input. Called at most once in a
  // connection.
  virtual void begin_line() noexcept {}
  // Space for received bytes; received() says how many came. Empty: no bytes are read before output
  // is sent.
  virtual std::span<char> room() noexcept = 0;
  virtual void received(size_t bytes) noexcept = 0;
  // The bytes to send next; sent() reports how many were sent.
  virtual std::string_view output() const noexcept = 0;
  virtual void sent(size_t bytes) noexcept = 0;
  // True once the session neither reads nor writes any more: the connection ends when output() is
  // empty.
  virtual bool is_over() const noexcept = 0;
  // A request has begun and is not complete.
  virtual bool is_in_request() const noexcept = 0;
  // The request was not complete in time. Requires: is_in_request().
  virtual void time_out() noexcept = 0;

  // True while another thread makes an answer. Meanwhile the connection is not read, and no time
  // limit ends it. The other thread calls ConnectionThread::wake when there is something to look()
  // for. look() is called then, and at least every half second; `now_ns` is monotonic_ns().
  virtual bool is_waiting() const noexcept { return false; }
  virtual void look(uint64_t /*now_ns*/) noexcept {}
  // Another thread still uses this session: it gets no new connection.
  virtual bool is_held() const noexcept { return false; }
};

}  // namespace bedplate
