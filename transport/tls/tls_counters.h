// The counters of a server's TLS; the thread of its connections writes them.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/counter_table.h"

namespace bedplate {

struct alignas(kCacheLineBytes) TlsCounters {
  Counter handshakes;  // handshakes that succeeded
  // Failed handshakes, by cause (TlsFailure).
  Counter failed_protocol;
  Counter failed_credentials;
  Counter failed_refused;
  Counter failed_memory;
  Counter failed_gone;
  Counter failed_late;
  // Sessions that failed after the handshake, for any cause: altered data, no memory, an alert.
  Counter broken_records;
  Counter read_bytes;  // decrypted bytes
  Counter written_bytes;
};

// Here, not in libbedplate-tls.a: programs without that archive describe them, too.
inline void describe(CounterTable& table, TlsCounters& c) {
  table.counter("tls_handshakes", c.handshakes, "handshakes", "Successful handshakes.");
  table
      .counter("tls_failed_protocol", c.failed_protocol, "handshakes",
               "Failed handshakes: the client does not speak TLS 1.2 or 1.3.")
      .alert_as_it_grows(
          "{tls_failed_protocol} clients did not speak TLS 1.2 or 1.3 so far: the log has the "
          "reasons; make them use it");
  table
      .counter("tls_failed_credentials", c.failed_credentials, "handshakes",
               "Failed handshakes: the client's key, certificate or ciphers are not accepted.")
      .alert_as_it_grows(
          "{tls_failed_credentials} clients presented keys or certificates that are not "
          "accepted so far: the log has the reasons; give them valid ones");
  table
      .counter("tls_failed_refused", c.failed_refused, "handshakes",
               "Failed handshakes: the client refused the server's certificate, key or ciphers.")
      .alert_as_it_grows(
          "{tls_failed_refused} clients refused the server's certificate or key so far: check "
          "whether it has expired, and which authorities they trust");
  table
      .counter("tls_failed_memory", c.failed_memory, "handshakes",
               "Failed handshakes: the memory for TLS was used up.")
      .alert_as_it_grows(
          "{tls_failed_memory} handshakes failed for lack of memory so far: raise its "
          "[[limit]], or have fewer clients");
  table
      .counter("tls_failed_gone", c.failed_gone, "handshakes",
               "Failed handshakes: the client left before the end.")
      .alert_as_it_grows(
          "{tls_failed_gone} clients left during the handshake so far: check their logs, and "
          "the network between");
  table
      .counter("tls_failed_late", c.failed_late, "handshakes",
               "Failed handshakes: the client took too long, and was disconnected.")
      .alert_as_it_grows(
          "{tls_failed_late} clients did not end their TLS handshake in time so far: check which "
          "programs connect here, and the network between");
  table
      .counter(
          "tls_broken_records", c.broken_records, "connections",
          "Connections closed after the handshake: an invalid record, an error of the client, or "
          "no memory.")
      .alert_as_it_grows(
          "TLS failed after the handshake on {tls_broken_records} connections so far: the log has "
          "the reasons; check the network between, and the clients");
  table.counter("tls_read_bytes", c.read_bytes, "bytes",
                "Bytes received, without the overhead of TLS.");
  table.counter("tls_written_bytes", c.written_bytes, "bytes",
                "Bytes sent, without the overhead of TLS.");
}

}  // namespace bedplate
