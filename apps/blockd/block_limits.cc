#include "apps/blockd/block_limits.h"

#include <algorithm>

#include "apps/blockd/nbd_connection_datapath.h"
#include "platform/assert.h"

namespace bedplate {

void BlockLimits::create(const std::vector<LimitPlan>& plans,
                         std::span<LimitCounters* const> counters, EventLoop& loop) {
  BP_ASSERT(all_.empty() && counters.size() == plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    BP_DCHECK(find(plans[i].kind, plans[i].name) == nullptr);
    all_.emplace_back(plans[i], loop, *counters[i]);
    all_.back().limit.set(plans[i].rates);
  }
}

BlockLimit* BlockLimits::find(LimitKind kind, std::string_view name) noexcept {
  for (Named& each : all_) {
    if (each.plan.kind == kind && each.plan.name == name) return &each.limit;
  }
  return nullptr;
}

bool BlockLimits::are_on() const noexcept {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Named& each) { return each.limit.rates().are_limited(); });
}

void BlockLimits::end() noexcept {
  for (Named& each : all_) each.limit.set({});
}

void BlockLimits::drop_requests_of(nbd::Connection& connection) noexcept {
  const auto drop = [&connection](BlockRequest& request) { connection.request_dropped(request); };
  for (Named& each : all_) each.limit.remove(connection, drop);
}

}  // namespace bedplate
