// [kvd] of the configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/services/limit_settings.h"
#include "platform/units.h"
#include "transport/sockets/socket_address.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

struct KvSettings {
  std::vector<SocketAddress> listen;
  std::vector<SocketAddress> image_listen;  // replaces the listen addresses in the first process of
                                            // an image; may be empty
  std::optional<uint32_t> shard = {};       // the only one
  std::vector<uint32_t> shards;             // without `shard`
  uint64_t cache_bytes = 64 * kMiB;
  uint64_t value_bytes_max = kMiB;
  uint32_t max_connections = 256;
  uint32_t client_timeout_s = 60;
  TlsFiles tls;
  std::vector<ListenerSettings> listeners;
};

class ConfigurationTable;
void describe(ConfigurationTable& table, KvSettings& settings);

}  // namespace bedplate
