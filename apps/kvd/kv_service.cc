#include "apps/kvd/kv_service.h"

#include <algorithm>

#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"
#include "platform/short_name.h"
#include "platform/units.h"

namespace bedplate {

PlacedServerPlan KvService::server_plan() const {
  return {.service = "kvd",
          .shards = placed(),
          .connection_count = settings_.max_connections,
          .connection_key = "max_connections",
          .listen_key = nullptr,  // its listeners have limits
          .tls = &settings_.tls,
          .is_traced = true};
}

// The cache is divided equally, and so are the connections.
std::vector<KvShare> KvService::shares() const {
  const std::vector<uint32_t> shards = placed();
  const auto shard_count = static_cast<uint32_t>(shards.size());
  std::vector<KvShare> parts;
  for (uint32_t i = 0; i < shard_count; ++i) {
    parts.push_back({.number = i,
                     .shard_count = shard_count,
                     .shard = shards[i],
                     .cache_bytes = settings_.cache_bytes / shard_count / (4 * kKiB) * (4 * kKiB),
                     .max_connections = PlacedServer::connections_of_each(server_plan())});
  }
  return parts;
}

// The errors name the sizes that would do: nobody has to divide by the number of shards.
Result<void> KvService::check() const {
  const size_t shard_count = placed().size();
  const uint64_t cache_bytes = shares().front().cache_bytes;
  if (cache_bytes < kMiB) {
    return configuration_error_while("checking cache_bytes in [kvd]")
        .set_answer("each of %zu shards would have less than 1 MiB", shard_count)
        .set_cure("set it to \"%s\" or more, or name fewer shards",
                  format_bytes(shard_count * kMiB).text);
  }
  if (settings_.value_bytes_max <= cache_bytes / 4) return {};
  Error error = configuration_error_while("checking value_max_bytes in [kvd]");
  if (shard_count == 1) {
    return error.set_answer("it is more than a quarter of the cache")
        .set_cure("raise cache_bytes, or lower value_max_bytes");
  }
  const uint64_t least_bytes = shard_count * align_up(4 * settings_.value_bytes_max, 4 * kKiB);
  const uint64_t most_bytes = align_down(cache_bytes / 4, kKiB);
  return error
      .set_answer("it is %s, more than a quarter of the cache of each of %zu shards",
                  format_bytes(settings_.value_bytes_max).text, shard_count)
      .set_cure("set cache_bytes to \"%s\" or more, set value_max_bytes to \"%s\" or less, or name "
                "fewer shards",
                format_bytes(least_bytes).text, format_bytes(most_bytes).text);
}

Result<void> KvService::plan(ServicePlan& plan) {
  BP_TRY(check());
  const std::vector<KvShare> all = shares();
  PlacedServerPlan server = server_plan();
  server.more_connection_bytes = KvShard::more_connection_bytes(all.front().shard_count);
  for (const KvShare& each : all) {
    server.carves.push_back(KvShard::carves(each));
    KvShard::plan(plan, each);
  }
  server_.plan<kvd::Session, kvd::Counters>(plan, server);
  plan.heap((all.size() - 1) * (sizeof(KvShard) + kKiB));
  plan_limits(plan);
  plan.listen("listen", settings_.listen, settings_.image_listen, {.shards = placed()});
  plan.trace({.kinds = kvd::kRequestKinds, .stations = StreamSession::kTraceStations});
  plan.message("get");
  return {};
}

void KvService::plan_limits(ServicePlan& plan) {
  limit_names_.clear();
  for (const SocketAddress& address : addresses(plan.configuration())) {
    limit_names_.push_back(address.text());
    plan.timers(limits_shard(), RequestLimit::kTimerCount);
    plan.counters<LimitCounters>(kLimitSet,
                                 short_name(limit_names_.back(), limit_names_.size() - 1));
  }
}

Result<void> KvService::create_limits(ServiceContext& context) {
  EventLoop& loop = context.loop(limits_shard());
  for (size_t i = 0; i < limit_names_.size(); ++i) {
    BP_TRY_ASSIGN(const auto counters,
                  context.counters<LimitCounters>(kLimitSet, short_name(limit_names_[i], i)));
    RequestLimit& limit =
        own_limits_.emplace_back(loop, *counters, &kvd::Session::turn_came, &loop);
    limit.set(limits_of(settings_.listeners, limit_names_[i]));
    limits_.add(0, limit_names_[i], limit);
  }
  return {};
}

Result<void> KvService::create_shards(ServiceContext& context) {
  const std::vector<KvShare> all = shares();
  counted_.resize(all.size());  // stats_ refers to its elements
  stats_.emplace(facts_, counted_);
  for (const KvShare& share : all) {
    if (share.number > 0) more_.push_back(std::make_unique<KvShard>());
    KvShard& shard = share.number > 0 ? *more_.back() : first_;
    BP_TRY(shard.create(context, share, {facts_, *stats_, limits_on_}));
    shards_.push_back(&shard);
    counted_[share.number] = &shard.counters();
    environments_.push_back(&shard.environment());
    facts_.memory_bytes += shard.memory_bytes();
    if (share.has_others()) balance_.add(shard.counters(), shard.memory_bytes());
  }
  StreamServerOptions options;
  options.name = "kvd";
  options.silence_ns_max = settings_.client_timeout_s * kNsPerSecond;
  if (all.size() == 1) options.answer_ns_max = 0;  // only limits make answers wait
  for (KvShard* const each : shards_) {
    BP_TRY_ASSIGN(StreamServer* const server,
                  each->create_server(context, server_, options, environments_));
    BP_TRY(add_listeners(context, each->share(), *server));
  }
  return {};
}

// The first shard has a socket at each address, the others at those of TCP.
Result<void> KvService::add_listeners(ServiceContext& context, const KvShare& share,
                                      StreamServer& server) {
  BP_TRY_ASSIGN(const auto listening, context.listeners("listen", share.shard));
  std::vector<SocketAddress> its = addresses(context.configuration());
  if (share.number > 0) {
    std::erase_if(its, [](const SocketAddress& address) {
      return address.kind != SocketAddress::Kind::kTcp4 &&
             address.kind != SocketAddress::Kind::kTcp6;
    });
  }
  for (size_t i = 0; i < listening.size(); ++i) {
    const SocketAddress& address = address_of_socket(its, i, listening.size());
    server.add_listener(listening[i].number(), limits_.find(0, address.text()));
  }
  return {};
}

Result<void> KvService::create(ServiceContext& context) {
  BP_DCHECK(shards_.empty());  // create() runs once
  BP_TRY(create_limits(context));
  facts_ = {.pid = static_cast<uint64_t>(getpid()),
            .started_ns = monotonic_ns(),
            .connections_max = settings_.max_connections,
            .value_bytes_max = settings_.value_bytes_max,
            .shard_count = static_cast<uint32_t>(placed().size())};
  BP_TRY(create_shards(context));
  limits_changed();
  return {};
}

void KvService::limits_changed() noexcept {
  BP_ASSERT(first_.environment().is_own_thread());
  const bool are_on = limits_.are_on();
  first_.environment().set_limited(are_on);
  limits_on_.set(are_on ? 1 : 0);
}

void KvService::set_limit(RequestLimit& limit, const LimitRates& rates) noexcept {
  limit.set(rates);
  limits_changed();
}

void KvService::end_limits() noexcept {
  limits_.end();
  limits_changed();
}

void KvService::request_drain() noexcept {
  is_draining_ = true;
  limits_.all().front().limit.loop().submit(end_limits_call_);
  server_.request_drain();
}

// The server first: a connection that closes may still give items back to other shards.
bool KvService::is_drained() const noexcept {
  return server_.is_drained() &&
         std::none_of(shards_.begin(), shards_.end(),
                      [](const KvShard* each) { return each->is_asking(); });
}

bool KvService::stopped() noexcept {
  server_.end();
  return true;
}

}  // namespace bedplate
