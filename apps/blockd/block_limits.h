// All limits of a block server: of its volumes, tenants and listeners (block_limit_datapath.h).
// They are planned, and live as long as the server.
//
// All are on one shard, the first one of connections: each is one budget, whatever shards its
// requests come from, and a request passes three of them, whose volumes, tenants and listeners have
// no shard in common. Requests of other shards come by a lane (far_limits_datapath.h).
//
// Threads: that shard; find(): any. Only create() allocates.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/blockd/block_limit_datapath.h"
#include "apps/services/service_limits.h"

namespace bedplate {

struct LimitPlan {
  LimitKind kind = LimitKind::kVolume;
  std::string name;  // of the volume or tenant, or the listener's address; unique for its kind
  LimitRates rates = {};
};

class BlockLimits : public ServiceLimits {
 public:
  // The timers that the limits need on their loop.
  static uint32_t timer_count(const std::vector<LimitPlan>& plans) noexcept {
    return RequestLimit::kTimerCount * static_cast<uint32_t>(plans.size());
  }

  // Makes a limit of each plan, with its counters. Requires: called once; `counters` has one for
  // each plan. Ownership: all outlive this object.
  void create(const std::vector<LimitPlan>& plans, std::span<LimitCounters* const> counters,
              EventLoop& loop);

  // nullptr: there is none.
  BlockLimit* find(LimitKind kind, std::string_view name) const noexcept {
    return static_cast<BlockLimit*>(ServiceLimits::find(static_cast<uint8_t>(kind), name));
  }
  // Gives the waiting requests of `connection`, which is on this shard, back to it
  // (Connection::request_dropped).
  void drop_requests_of(nbd::Connection& connection) noexcept;
  // Pushes the waiting requests of connections on the shard `home` that have left
  // (Connection::has_left) into `lane`.
  void give_back_left(uint8_t home, BlockLane& lane) noexcept;

 private:
  std::deque<BlockLimit> limits_;  // a deque: limits do not move
};

}  // namespace bedplate
