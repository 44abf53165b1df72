#include "apps/kvd/kv_service.h"

#include <sys/random.h>
#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"
#include "platform/short_name.h"

namespace bedplate {

Result<void> KvService::plan(ServicePlan& plan) {
  if (settings_.value_bytes_max > settings_.cache_bytes / 4) {
    return configuration_error_while("checking value_max_bytes in [kvd]")
        .set_answer("it is more than a quarter of the cache")
        .set_cure("raise cache_bytes, or lower value_max_bytes");
  }
  plan.segment(
      "kvd",
      {{"cache:kvd", settings_.cache_bytes},
       {"index:kvd", KeyedCache::index_bytes(settings_.cache_bytes)},
       {"connections:kvd", StreamServer::bytes_for<kvd::Session>(settings_.max_connections)}},
      plan.placement(settings_.shard));
  plan.connections(settings_.shard, settings_.max_connections, "max_connections");
  plan.counters<kvd::Counters>("kvd");
  plan_limits(plan);
  plan.tls(settings_.shard, settings_.max_connections, settings_.tls);
  plan.listen("listen", settings_.listen, settings_.image_listen);
  plan.trace({.kinds = kvd::kRequestKinds, .stations = StreamSession::kTraceStations});
  plan.messages(settings_.shard);
  plan.message("get");
  plan.sources(settings_.shard, 1);
  return {};
}

void KvService::plan_limits(ServicePlan& plan) {
  limit_names_.clear();
  for (const SocketAddress& address : addresses(plan.configuration())) {
    limit_names_.push_back(address.text());
    plan.timers(settings_.shard, RequestLimit::kTimerCount);
    plan.counters<LimitCounters>(kLimitSet,
                                 short_name(limit_names_.back(), limit_names_.size() - 1));
  }
}

Result<void> KvService::create_limits(ServiceContext& context) {
  EventLoop& loop = context.loop(settings_.shard);
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

Result<void> KvService::create(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto counters, context.counters<kvd::Counters>("kvd"));
  BP_TRY_ASSIGN(const auto cache, context.carve("cache:kvd"));
  BP_TRY_ASSIGN(const auto index, context.carve("index:kvd"));
  BP_TRY_ASSIGN(const auto connections, context.carve("connections:kvd"));
  BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
  BP_TRY_ASSIGN(const auto messenger, context.messenger(settings_.shard));
  BP_TRY_ASSIGN(const auto get, context.message("get"));
  BP_TRY_ASSIGN(const auto trace, context.trace(settings_.shard));
  BP_TRY_ASSIGN(const auto tls, context.tls(settings_.shard));

  uint64_t seed = monotonic_ns();
  (void)getrandom(&seed, sizeof seed, GRND_NONBLOCK);
  cache_.create({.memory = cache,
                 .index = index,
                 .seed = seed,
                 .key_offset_bytes = kvd::kValueWord.size(),
                 .counters = &counters->cache});
  BP_DCHECK(environment_.loop == nullptr);  // create() runs once
  BP_TRY(create_limits(context));
  facts_ = {.pid = static_cast<uint64_t>(getpid()),
            .started_ns = monotonic_ns(),
            .connections_max = settings_.max_connections,
            .value_bytes_max = settings_.value_bytes_max,
            .memory_bytes = cache_.memory_bytes()};
  counted_[0] = counters;
  environment_ = {.loop = &context.loop(settings_.shard),
                  .cache = &cache_,
                  .counters = counters,
                  .facts = &facts_,
                  .stats = &stats_.emplace(facts_, counted_)};
  environment_.set_limited(limits_.are_on());
  server_.create<kvd::Session>({.name = "kvd",
                                .loop = &context.loop(settings_.shard),
                                .sockets = &context.sockets(settings_.shard),
                                .counters = &counters->clients,
                                .silence_ns_max = settings_.client_timeout_s * kNsPerSecond,
                                .answer_ns_max = 0,  // only limits make answers wait
                                .trace = trace,
                                .layers = tls},
                               connections, environment_);
  for (size_t i = 0; i < listening.size(); ++i) {
    const SocketAddress& address =
        address_of_socket(addresses(context.configuration()), i, listening.size());
    server_.add_listener(listening[i].number(), limits_.find(0, address.text()));
  }
  message_gets_.create({.messenger = messenger,
                        .question = get,
                        .lent_bytes_max = settings_.cache_bytes / 8,
                        .dropped = &counters->messages_dropped});
  return context.add_source(settings_.shard, message_gets_, 64);
}

void KvService::set_limit(RequestLimit& limit, const LimitRates& rates) noexcept {
  BP_ASSERT(environment_.is_own_thread());
  limit.set(rates);
  environment_.set_limited(limits_.are_on());
}

void KvService::end_limits() noexcept {
  BP_ASSERT(environment_.is_own_thread());
  limits_.end();
  environment_.set_limited(false);
}

void KvService::request_drain() noexcept {
  is_draining_ = true;
  limits_.all().front().limit.loop().submit(end_limits_call_);
  server_.request_drain();
}

}  // namespace bedplate
