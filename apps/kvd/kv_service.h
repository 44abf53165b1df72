// kvd: a key-value service in the memcached text protocol, on one shard or several.
//
// Each shard owns a part of the keys (key_owner_datapath.h), and has a part of the connections.
// Read on: one shard (kv_shard.h), its commands (session_datapath.h), commands for keys of other
// shards (session_waves_datapath.cc), gets by message (message_gets_datapath.h). The runtime
// provides the cache (alloc/keyed_cache_datapath.h), the connections (apps/boot/placed_server.h)
// and a session's buffers (transport/sockets/stream_session_datapath.h).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/placed_server.h"
#include "apps/kvd/kv_balance.h"
#include "apps/kvd/kv_settings.h"
#include "apps/kvd/kv_shard.h"
#include "apps/services/limit_methods.h"
#include "apps/services/listeners.h"
#include "apps/services/service.h"
#include "apps/services/service_limits.h"
#include "platform/clock.h"
#include "platform/counter.h"
#include "transport/loop/request_limit_datapath.h"

namespace bedplate {

class KvService final : public Service {
 public:
  const char* name() const noexcept override { return "kvd"; }
  void describe(ConfigurationTable& table) override { bedplate::describe(table, settings_); }
  Result<void> plan(ServicePlan& plan) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override { server_.start(shard); }
  void tick() noexcept override { balance_.look(monotonic_ns()); }
  void methods(ControlMethods& methods) override { limit_methods_.add_to(methods); }
  void request_drain() noexcept override;
  bool is_drained() const noexcept override;
  bool stopped() noexcept override;

 private:
  static constexpr const char* kLimitSet = "listener_limits";
  static constexpr LimitMethods::Kind kLimitKinds[] = {{"listener", "An address of listen."}};

  // The addresses that it listens at. Each has a limit, perhaps without rates.
  const std::vector<SocketAddress>& addresses(const Configuration& all) const {
    return listened_addresses(all, settings_.listen, settings_.image_listen);
  }
  // The shards that it is placed on.
  std::vector<uint32_t> placed() const {
    return settings_.shard ? std::vector<uint32_t>{*settings_.shard} : settings_.shards;
  }
  // The shard of the limits of listeners, for the clients of all shards: the first one.
  uint32_t limits_shard() const { return placed().front(); }
  PlacedServerPlan server_plan() const;
  // The parts of all shards, in their order.
  std::vector<KvShare> shares() const;
  Result<void> check() const;
  void plan_limits(ServicePlan& plan);
  Result<void> create_limits(ServiceContext& context);
  Result<void> create_shards(ServiceContext& context);
  Result<void> add_listeners(ServiceContext& context, const KvShare& share, StreamServer& server);
  // These run on the shard of the limits. A drain ends them, so that all requests are answered.
  void set_limit(RequestLimit& limit, const LimitRates& rates) noexcept;
  void end_limits() noexcept;
  void limits_changed() noexcept;

  KvSettings settings_;
  kvd::Facts facts_;
  std::vector<const kvd::Counters*> counted_;  // of each shard, as the environments
  std::optional<kvd::Stats> stats_;
  std::vector<const kvd::Environment*> environments_;
  KvShard first_;
  std::vector<std::unique_ptr<KvShard>> more_;
  std::vector<KvShard*> shards_;  // all, by their numbers
  PlacedServer server_;
  kvd::KvBalance balance_;

  std::vector<std::string> limit_names_;  // of the last plan
  std::deque<RequestLimit> own_limits_;   // a deque: limits do not move
  ServiceLimits limits_;
  Counter limits_on_;  // KvShard::Shared
  std::atomic<bool> is_draining_{false};
  LoopCall end_limits_call_ = {
      .function = [](void* self) noexcept { static_cast<KvService*>(self)->end_limits(); },
      .context = this};
  LimitMethods limit_methods_{LimitMethods::Terms{
      .service = "kvd",
      .kinds = kLimitKinds,
      .limits = &limits_,
      .drains = &is_draining_,
      .change =
          [](void* self, RequestLimit& limit, const LimitRates& rates) noexcept {
            static_cast<KvService*>(self)->set_limit(limit, rates);
          },
      .context = this}};
};

}  // namespace bedplate
