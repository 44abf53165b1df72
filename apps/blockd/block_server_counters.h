// What blockd counts: written by its shards, read by `bedplate stats`.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"

namespace bedplate {

// Written by the shard of the connections.
struct alignas(kCacheLineBytes) ConnectionCounters {
  Counter connections_open;
  Counter connections_total;
  Counter connections_refused;  // over max_connections
  Counter handshake_timeouts;
  Counter protocol_errors;  // disconnected because of what the client sent
  Counter broken_connections;  // the socket failed, or the client left in the middle of something
  Counter requests_read;
  Counter requests_write;
  Counter requests_flush;
  Counter requests_trim;
  Counter requests_write_zeroes;
  Counter requests_refused;  // answered with an error
  Counter bytes_read;
  Counter bytes_written;
};

// Written by the shard of the volumes.
struct alignas(kCacheLineBytes) VolumeCounters {
  Counter grants;   // destinations given to writes
  Counter commits;  // writes whose payload arrived whole
  Counter aborts;   // writes whose client left in the middle
};

}  // namespace bedplate
