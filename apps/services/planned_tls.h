// TLS for the connections of services, as they have planned it (ServicePlan::tls): the runtime
// reads the files of keys while it still has the rights, and keeps them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/configuration/configuration.h"
#include "pinned_pool/owner_name.h"
#include "platform/result.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

class TlsServer;
struct ServiceNeeds;

inline constexpr const char* kTlsCounters = "tls";  // the name of their set

// The connections of one shard.
struct TlsShardNeed {
  uint32_t shard = 0;
  uint32_t connection_count = 0;
  OwnerName streams = {};     // the carve of their layers
  std::string counters = {};  // the instance of their counters
  uint64_t handshake_ns_max = 0;
};

// TLS of one service.
struct TlsNeed {
  TlsFiles files;  // empty: the configuration has no keys, so nothing else is planned
  PlainText plain_text = PlainText::kLocal;
  std::string heap_owner;  // of the library's memory
  std::vector<TlsShardNeed> shards;

  uint64_t heap_bytes() const noexcept;
};

// Reads the files of each service, and appends each problem to `problems`. Keeps nothing.
void check_planned_tls(const std::vector<ServiceNeeds>& services, std::vector<Error>* problems);

// Reads them again, and limits the memory of each heap owner. Returns one element for each service;
// nullptr: it has no TLS. Errors: a file has changed since the check. Threads: the main thread,
// when the heap exists.
Result<std::vector<std::unique_ptr<TlsServer>>> load_planned_tls(
    const std::vector<ServiceNeeds>& services);

}  // namespace bedplate
