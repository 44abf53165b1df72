#include "apps/kvd/kv_service.h"

#include <algorithm>

#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/short_name.h"
#include "platform/units.h"

namespace bedplate {

// The cache is divided equally. All listeners are on the first shard, so all connections are, too.
std::vector<KvShare> KvService::shares(const Configuration& all) const {
  std::vector<uint32_t> shards = settings_.shards;
  if (shards.empty()) shards.push_back(settings_.shard);
  const auto shard_count = static_cast<uint32_t>(shards.size());
  std::vector<KvShare> parts;
  for (uint32_t i = 0; i < shard_count; ++i) {
    parts.push_back(
        {.number = i,
         .shard_count = shard_count,
         .shard = shards[i],
         .name = all.shards[shards[i]].name,
         .cache_bytes = settings_.cache_bytes / shard_count / (4 * kKiB) * (4 * kKiB),
         .max_connections = shards[i] == listening_shard() ? settings_.max_connections : 0});
  }
  return parts;
}

Result<void> KvService::plan(ServicePlan& plan) {
  const std::vector<KvShare> all = shares(plan.configuration());
  const uint64_t cache_bytes = all.front().cache_bytes;
  if (cache_bytes < kMiB) {
    return configuration_error_while("checking cache_bytes in [kvd]")
        .set_answer("each of %zu shards would have less than 1 MiB", all.size())
        .set_cure("raise it, or name fewer shards");
  }
  if (settings_.value_bytes_max > cache_bytes / 4) {
    return configuration_error_while("checking value_max_bytes in [kvd]")
        .set_answer(all.size() == 1 ? "it is more than a quarter of the cache"
                                    : "it is more than a quarter of the cache of a shard")
        .set_cure("raise cache_bytes, or lower value_max_bytes");
  }
  for (const KvShare& each : all) KvShard::plan(plan, each);
  plan.heap((all.size() - 1) * (sizeof(KvShard) + kKiB));
  plan_limits(plan);
  plan.tls(listening_shard(), settings_.max_connections, settings_.tls);
  plan.listen("listen", settings_.listen, settings_.image_listen);
  plan.trace({.kinds = kvd::kRequestKinds, .stations = StreamSession::kTraceStations});
  plan.message("get");
  return {};
}

void KvService::plan_limits(ServicePlan& plan) {
  limit_names_.clear();
  for (const SocketAddress& address : addresses(plan.configuration())) {
    limit_names_.push_back(address.text());
    plan.timers(listening_shard(), RequestLimit::kTimerCount);
    plan.counters<LimitCounters>(kLimitSet,
                                 short_name(limit_names_.back(), limit_names_.size() - 1));
  }
}

Result<void> KvService::create_limits(ServiceContext& context) {
  EventLoop& loop = context.loop(listening_shard());
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
  const std::vector<KvShare> all = shares(context.configuration());
  counted_.resize(all.size());  // stats_ refers to its elements
  stats_.emplace(facts_, counted_);
  for (const KvShare& share : all) {
    if (share.number > 0) more_.push_back(std::make_unique<KvShard>());
    KvShard& shard = share.number > 0 ? *more_.back() : first_;
    BP_TRY(shard.create(context, share, facts_, *stats_));
    shards_.push_back(&shard);
    counted_[share.number] = &shard.counters();
    environments_.push_back(&shard.environment());
    facts_.memory_bytes += shard.memory_bytes();
    if (all.size() > 1) balance_.add(shard.counters(), shard.memory_bytes());
  }
  for (KvShard* const each : shards_) {
    BP_TRY(each->create_server(context, settings_, environments_));
  }
  return {};
}

Result<void> KvService::create(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
  BP_DCHECK(shards_.empty());  // create() runs once
  BP_TRY(create_limits(context));
  facts_ = {.pid = static_cast<uint64_t>(getpid()),
            .started_ns = monotonic_ns(),
            .connections_max = settings_.max_connections,
            .value_bytes_max = settings_.value_bytes_max,
            .shard_count = static_cast<uint32_t>(shares(context.configuration()).size())};
  BP_TRY(create_shards(context));
  first_.environment().set_limited(limits_.are_on());
  for (size_t i = 0; i < listening.size(); ++i) {
    const SocketAddress& address =
        address_of_socket(addresses(context.configuration()), i, listening.size());
    first_.server().add_listener(listening[i].number(), limits_.find(0, address.text()));
  }
  return {};
}

void KvService::start(uint32_t shard) noexcept {
  for (KvShard* const each : shards_) {
    if (each->share().shard == shard && each->has_server()) each->server().start();
  }
}

void KvService::set_limit(RequestLimit& limit, const LimitRates& rates) noexcept {
  BP_ASSERT(first_.environment().is_own_thread());
  limit.set(rates);
  first_.environment().set_limited(limits_.are_on());
}

void KvService::end_limits() noexcept {
  BP_ASSERT(first_.environment().is_own_thread());
  limits_.end();
  first_.environment().set_limited(false);
}

void KvService::request_drain() noexcept {
  is_draining_ = true;
  limits_.all().front().limit.loop().submit(end_limits_call_);
  for (KvShard* const each : shards_) {
    if (each->has_server()) each->server().request_drain();
  }
}

bool KvService::is_drained() const noexcept {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const KvShard* each) { return each->is_drained(); });
}

}  // namespace bedplate
