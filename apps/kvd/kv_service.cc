#include "apps/kvd/kv_service.h"

#include <sys/random.h>
#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"

namespace bedplate {

void KvService::describe(ConfigurationTable& table) {
  table.addresses("listen", &listen_, 1, StreamServer::kListenersMax)
      .required()
      .unique()
      .help("The addresses at which kvd listens; see Addresses below.");
  table.addresses("image_listen", &image_listen_, 1, StreamServer::kListenersMax)
      .otherwise("those of listen")
      .unique()
      .help("The addresses instead, as first process of an image.");
  table.shard("shard", &shard_).help("The shard that all of it lives on.");
  table.size("cache_bytes", &cache_bytes_, kMiB, KeyedCache::kMemoryMaxBytes)
      .rule(ConfigurationKey::Rule::kMultipleOf4KiB)
      .help("Memory for keys and values. The index takes up to a sixteenth beside it.");
  table.size("value_max_bytes", &value_bytes_max_, kKiB, kGiB)
      .help("A longer value is refused. At most a quarter of the cache.");
  table.integer("max_connections", &max_connections_, 1, 65536)
      .help("How many clients may be connected. Their buffers are planned; more are closed.");
  table.integer("client_timeout_s", &client_timeout_s_, 0, 3600)
      .help("After how long a client over TCP is disconnected whose host gives no sign of life, or "
            "that takes none of its replies. 0: it keeps its place for ever.");
}

Result<void> KvService::plan(ServicePlan& plan) {
  if (value_bytes_max_ > cache_bytes_ / 4) {
    return configuration_error_while("value_max_bytes in [kvd]")
        .set_answer("it is more than a quarter of the cache")
        .set_cure("raise cache_bytes, or lower value_max_bytes");
  }
  plan.segment("kvd",
               {{"cache:kvd", cache_bytes_},
                {"index:kvd", KeyedCache::index_bytes(cache_bytes_)},
                {"connections:kvd", StreamServer::bytes_for<kvd::Session>(max_connections_)}},
               plan.placement(shard_));
  plan.connections(shard_, max_connections_, "max_connections");
  plan.listen("listen", listen_, image_listen_);
  plan.counters<kvd::Counters>("kvd");
  plan.trace({.kinds = kvd::kRequestKinds, .stations = StreamSession::kTraceStations});
  plan.messages(shard_);
  plan.message("get");
  plan.sources(shard_, 1);
  return {};
}

Result<void> KvService::create(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto counters, context.counters<kvd::Counters>("kvd"));
  BP_TRY_ASSIGN(const auto cache, context.carve("cache:kvd"));
  BP_TRY_ASSIGN(const auto index, context.carve("index:kvd"));
  BP_TRY_ASSIGN(const auto connections, context.carve("connections:kvd"));
  BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
  BP_TRY_ASSIGN(const auto messenger, context.messenger(shard_));
  BP_TRY_ASSIGN(const auto get, context.message("get"));
  BP_TRY_ASSIGN(const auto trace, context.trace(shard_));

  uint64_t seed = monotonic_ns();
  (void)getrandom(&seed, sizeof seed, GRND_NONBLOCK);
  cache_.create({.memory = cache,
                 .index = index,
                 .seed = seed,
                 .key_offset_bytes = kvd::kValueWord.size(),
                 .counters = &counters->cache});
  BP_DCHECK(environment_.loop == nullptr);  // it is made once
  facts_ = {.pid = static_cast<uint64_t>(getpid()),
            .started_ns = monotonic_ns(),
            .connections_max = max_connections_,
            .value_bytes_max = value_bytes_max_,
            .memory_bytes = cache_.memory_bytes()};
  environment_ = {.loop = &context.loop(shard_),
                  .cache = &cache_,
                  .counters = counters,
                  .facts = &facts_,
                  .stats = &stats_.emplace(facts_, *counters)};
  server_.create<kvd::Session>({.name = "kvd",
                                .loop = &context.loop(shard_),
                                .sockets = &context.sockets(shard_),
                                .counters = &counters->clients,
                                .silence_ns_max = client_timeout_s_ * kNsPerSecond,
                                .trace = trace},
                               connections, environment_);
  for (const Fd& socket : listening) server_.add_listener(socket.number());
  message_gets_.create({.messenger = messenger,
                        .question = get,
                        .lent_bytes_max = cache_bytes_ / 8,
                        .dropped = &counters->messages_dropped});
  return context.add_source(shard_, message_gets_, 64);
}

}  // namespace bedplate
