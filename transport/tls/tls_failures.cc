#include "transport/tls/tls_failures.h"

#include "platform/assert.h"
#include "platform/log.h"
#include "transport/sockets/slow_sends.h"

namespace bedplate {
namespace {

void count_handshake(TlsFailure failure, TlsCounters& counters) noexcept {
  switch (failure) {
    case TlsFailure::kNone: return;
    case TlsFailure::kProtocol: return counters.failed_protocol.add(1);
    case TlsFailure::kCredentials: return counters.failed_credentials.add(1);
    case TlsFailure::kRefused: return counters.failed_refused.add(1);
    case TlsFailure::kMemory: return counters.failed_memory.add(1);
    case TlsFailure::kGone: return counters.failed_gone.add(1);
    case TlsFailure::kLate: return counters.failed_late.add(1);
  }
}

}  // namespace

void tell_tls_failure(const TlsSession& session, int fd, TlsCounters* counters, LogLimit* log_limit,
                      const char* where) noexcept {
  BP_DCHECK(session.failure() != TlsFailure::kNone);
  if (session.is_established()) {
    counters->broken_records.add(1);
  } else {
    count_handshake(session.failure(), *counters);
  }
  if (!log_limit->try_pass(where)) return;
  char peer[256];
  BP_LOG_WARNING("%s: TLS with the client %s failed: %s (%s)", where,
                 describe_connection(fd, peer, sizeof peer), to_text(session.failure()),
                 session.failure_text());
}

}  // namespace bedplate
