// Reports a failure of TLS with a client: counts it, and logs a line if the log's limit permits. A
// failed handshake counts by its cause; any later failure counts as broken_records.
#pragma once

#include "platform/log_limit.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_session.h"

namespace bedplate {

// Called for a session that has just failed, over the connection `fd`. `where`, in the log:
// "[server]".
void tell_tls_failure(const TlsSession& session, int fd, TlsCounters* counters, LogLimit* log_limit,
                      const char* where) noexcept;

}  // namespace bedplate
