#include "apps/blockd/block_limits.h"

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
  for (BlockLimit& each : limits_) each.remove(connection, drop);
}

}  // namespace bedplate
