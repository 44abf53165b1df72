// The counters of a server's TLS, written by the thread of its connections.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"

namespace bedplate {

struct alignas(kCacheLineBytes) TlsCounters {
  Counter handshakes;  // that were agreed
  // Handshakes that were not, by cause (TlsFailure).
  Counter failed_protocol;
  Counter failed_credentials;
  Counter failed_refused;
  Counter failed_memory;
  Counter failed_gone;
  Counter broken_records;  // after the handshake: what came was changed, or no record
  Counter read_bytes;      // of what was encrypted
  Counter written_bytes;
};

}  // namespace bedplate
