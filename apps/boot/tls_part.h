// TLS for services whose connections are served beside the shards (connection_thread.h), if the
// program has it: libbedplate-tls.a, with OpenSSL behind it. Also the parts of configuration and
// counters that all services with TLS share.
//
// The runtime knows the archive weakly: a program without it links nothing of OpenSSL, and refuses
// a configuration that asks for TLS here. One that is to have it asks for bedplate_tls_part
// (-Wl,-u, which bedplate-tls.pc says).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/configuration/read_table.h"
#include "apps/connections/connection_session.h"
#include "platform/counter_table.h"
#include "platform/log_limit.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_credentials.h"

namespace bedplate {

// The end of a server that speaks TLS. Threads: load() and wrap() the main one's; a session that
// wrap() made is for the thread of the connections.
class TlsServer {
 public:
  virtual ~TlsServer() = default;

  // As TlsCredentials::load().
  virtual bool load(const TlsFiles& files, std::vector<Error>* problems) = 0;
  // A connection with TLS, in which `inner` is spoken: both outlive it. A client that has shown a
  // certificate is told to `inner` (ConnectionSession::peer_is_certified). Requires: load()
  // returned true. The session goes before this does.
  virtual std::unique_ptr<ConnectionSession> wrap(ConnectionSession& inner,
                                                  TlsCounters& counters) = 0;
};

// The functions that libbedplate-tls.a brings to the runtime.
struct TlsPart {
  // `where`, in the log: "[server]"; `heap_owner` is charged. Both are static.
  std::unique_ptr<TlsServer> (*make)(const char* where, const char* heap_owner);
  uint64_t connection_bytes;  // what wrap() takes
};

// nullptr: the program was linked without it.
const TlsPart* tls_part() noexcept;

// Checks that a certificate and its key come together, and tls_client_authorities only with them.
void check_tls_certificate(ReadTable& read, const TlsFiles& files);

inline void describe(CounterTable& table, TlsCounters& c) {
  table.counter("tls_handshakes", c.handshakes, "handshakes", "Handshakes that were agreed.");
  table
      .counter("tls_failed_protocol", c.failed_protocol, "handshakes",
               "Failed: what the client sent is no TLS 1.2 or 1.3.")
      .sign_as_it_grows(
          "clients come without TLS 1.2 or 1.3, {tls_failed_protocol} by now: the log names them; "
          "have them use it");
  table
      .counter("tls_failed_credentials", c.failed_credentials, "handshakes",
               "Failed: the client's key, certificate or ciphers are not ours.")
      .sign_as_it_grows(
          "clients bring keys or certificates that are not ours, {tls_failed_credentials} by now: "
          "the log names them; give them good ones");
  table
      .counter("tls_failed_refused", c.failed_refused, "handshakes",
               "Failed: the client refused our certificate, key or ciphers.")
      .sign_as_it_grows(
          "clients refuse our certificate or key, {tls_failed_refused} by now: look whether it has "
          "expired, and whom they trust");
  table
      .counter("tls_failed_memory", c.failed_memory, "handshakes",
               "Failed: the memory for TLS was used up.")
      .sign_as_it_grows(
          "there is no memory for TLS, and {tls_failed_memory} handshakes failed by now: raise its "
          "[[limit]], or have fewer clients");
  table
      .counter("tls_failed_gone", c.failed_gone, "handshakes",
               "Failed: the client left in the middle.")
      .sign_as_it_grows(
          "clients leave in the middle of a handshake, {tls_failed_gone} by now: look at their "
          "logs, and at the network between");
  table
      .counter("tls_broken_records", c.broken_records, "connections",
               "Closed after the handshake: what came was changed, or is no record.")
      .sign_as_it_grows(
          "what comes by TLS was changed on the way, {tls_broken_records} connections by now: look "
          "at what lies between, and at the clients");
  table.counter("tls_read_bytes", c.read_bytes, "bytes", "Received, without what TLS adds.");
  table.counter("tls_written_bytes", c.written_bytes, "bytes", "Sent, without what TLS adds.");
}

}  // namespace bedplate
