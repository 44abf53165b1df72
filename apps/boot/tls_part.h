// TLS for services whose connections are served by threads beside the shards (connection_thread.h),
// if the program links libbedplate-tls.a, which uses OpenSSL. Also the check of the configuration
// keys that all services with TLS share.
//
// The runtime refers to the archive by a weak symbol. A program without the archive links nothing
// of OpenSSL; its services of this kind refuse a configuration with TLS keys. A program with TLS
// asks for bedplate_tls_part (-Wl,-u, in bedplate-tls.pc).
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

// The server's end of TLS. Threads: main thread for load() and wrap(); a session that wrap() made
// belongs to the thread of the connections.
class TlsServer {
 public:
  virtual ~TlsServer() = default;

  // See TlsCredentials::load().
  virtual bool load(const TlsFiles& files, std::vector<Error>* problems) = 0;
  // Wraps a connection in TLS: `inner` handles the plain text. `inner` and `counters` outlive the
  // session, and the session is destroyed before this object. If the client has shown a
  // certificate, `inner` is told (ConnectionSession::peer_is_certified). Requires: load() returned
  // true.
  virtual std::unique_ptr<ConnectionSession> wrap(ConnectionSession& inner,
                                                  TlsCounters& counters) = 0;
};

// The functions that libbedplate-tls.a brings to the runtime.
struct TlsPart {
  // `where` appears in the log: "[server]". Allocations are charged to `heap_owner`. Both are
  // static.
  std::unique_ptr<TlsServer> (*make)(const char* where, const char* heap_owner);
  // Heap memory of one session of wrap(). OpenSSL's own memory comes on top, charged to
  // `heap_owner` (TlsCredentials::heap_bytes).
  uint64_t connection_bytes;
};

// nullptr: the program was linked without it.
const TlsPart* tls_part() noexcept;

// Checks that a certificate and its key come together, and tls_client_authorities only with them.
void check_tls_certificate(ReadTable& read);

}  // namespace bedplate
