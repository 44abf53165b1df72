#include "apps/kvd/kv_settings.h"

#include "alloc/keyed_cache_datapath.h"
#include "apps/configuration/configuration_table.h"
#include "apps/configuration/read_table.h"
#include "apps/services/limit_settings.h"
#include "apps/services/tls_keys.h"
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
      .help("The addresses to use instead as the first process of an image.");
  if (!table.is_sample()) settings.shard.reset();  // an earlier file's
  table.shard("shard", &settings.shard)
      .otherwise("those of `shards`")
      .help("The one shard that serves all keys and connections, instead of `shards`.");
  table.shards_or_all("shards", &settings.shards)
      .help("The shards that serve keys and connections, each a part of them. Their order says "
            "which keys ([kvd.md](kvd.md#several-shards)).");
  table.size("cache_bytes", &settings.cache_bytes, kMiB, KeyedCache::kMemoryMaxBytes)
      .rule(ConfigurationKey::Rule::kMultipleOf4KiB)
      .help("Memory for keys and values, divided among the shards. The index takes up to a "
            "sixteenth in addition.");
  table.size("value_max_bytes", &settings.value_bytes_max, kKiB, kGiB)
      .help("The longest value; longer ones are refused. At most a quarter of a shard's cache.");
  table.integer("max_connections", &settings.max_connections, 1, 65536)
      .help("The most clients at once, divided among the shards and rounded up. Their buffers, 34 "
            "KiB for each, 128 KiB more with TLS and some 13 KiB more with several shards, are "
            "planned; further connections are closed at once.");
  table.integer("client_timeout_s", &settings.client_timeout_s, 0, 3600)
      .help("A client over TCP is disconnected when its host does not respond, or it does not "
            "read its replies, for this long. 0: never.");
  table.check([](ReadTable& read) {
    if (!read.has("shard")) return;
    read.refuse_keys({"shards"}, "is set beside \"shard\"", "expected only one of them");
  });
  describe_tls_keys(table, &settings.tls, {.page = "kvd.md#tls"});
  describe_listeners(table, &settings.listeners, settings.listen, settings.image_listen);
}

}  // namespace bedplate
