#include "apps/blockd/block_limits.h"

#include <atomic>

#include "apps/blockd/nbd_connection_datapath.h"
#include "platform/assert.h"

namespace bedplate {

void BlockLimits::create(const std::vector<LimitPlan>& plans,
                         std::span<LimitCounters* const> counters, EventLoop& loop) {
  BP_ASSERT(limits_.empty() && counters.size() == plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    BlockLimit& limit = limits_.emplace_back(plans[i].kind, loop, *counters[i]);
    limit.set(plans[i].rates);
    add(static_cast<uint8_t>(plans[i].kind), plans[i].name, limit);
  }
}

void BlockLimits::drop_requests_of(nbd::Connection& connection) noexcept {
  const auto drop = [&connection](BlockRequest& request) { connection.request_dropped(request); };
  const auto is_its = [&connection](const BlockRequest& request) {
    return request.connection == &connection;
  };
  for (BlockLimit& each : limits_) each.remove(is_its, drop);
}

void BlockLimits::give_back_left(uint8_t home, BlockLane& lane) noexcept {
  const auto has_left = [home](const BlockRequest& request) {
    return request.home == home && request.connection->has_left.load(std::memory_order_relaxed);
  };
  const auto give_back = [&lane](BlockRequest& request) { lane.push(request); };
  for (BlockLimit& each : limits_) each.remove(has_left, give_back);
}

}  // namespace bedplate
