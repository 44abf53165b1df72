#include "apps/kvd/kv_settings.h"

#include "alloc/keyed_cache_datapath.h"
#include "apps/configuration/configuration_table.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

void describe(ConfigurationTable& table, KvSettings& settings) {
  table.addresses("listen", &settings.listen, 1, StreamServer::kListenersMax)
      .required()
      .unique()
      .help("The addresses at which kvd listens; see Addresses below.");
  table.addresses("image_listen", &settings.image_listen, 1, StreamServer::kListenersMax)
      .otherwise("those of listen")
      .unique()
      .help("The addresses instead, as first process of an image.");
  table.shard("shard", &settings.shard).help("The shard that all of it lives on.");
  table.size("cache_bytes", &settings.cache_bytes, kMiB, KeyedCache::kMemoryMaxBytes)
      .rule(ConfigurationKey::Rule::kMultipleOf4KiB)
      .help("Memory for keys and values. The index takes up to a sixteenth beside it.");
  table.size("value_max_bytes", &settings.value_bytes_max, kKiB, kGiB)
      .help("A longer value is refused. At most a quarter of the cache.");
  table.integer("max_connections", &settings.max_connections, 1, 65536)
      .help("How many clients may be connected. Their buffers are planned; more are closed.");
  table.integer("client_timeout_s", &settings.client_timeout_s, 0, 3600)
      .help("After how long a client over TCP is disconnected whose host gives no sign of life, or "
            "that takes none of its replies. 0: it keeps its place for ever.");
}

}  // namespace bedplate
