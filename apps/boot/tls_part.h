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

}  // namespace bedplate
