#include "apps/boot/appliance_plan.h"

#include "alloc/confined_heap.h"
#include "pinned_pool/boot_segment.h"
#include "platform/thread_stack.h"

namespace bedplate {

BlockServerOptions block_server_options(const BlockdSettings& settings) {
  BlockServerOptions options;
  for (const VolumeSettings& volume : settings.volumes) {
    options.volumes.push_back({volume.name, volume.bytes, volume.read_only});
  }
  options.max_connections = settings.max_connections;
  options.requests_per_connection = settings.requests_per_connection;
  options.handshake_timeout_ns = settings.handshake_timeout_ms * kNsPerMs;
  return options;
}

Result<AppliancePlan> plan_appliance(const Configuration& configuration) {
  std::vector<SegmentRequest> requests;
  if (configuration.blockd.enabled) {
    requests = plan_block_server(block_server_options(configuration.blockd));
  }
  PoolBudget budget;
  budget.bytes = configuration.pool.bytes;
  budget.page = configuration.pool.page;
  budget.boot_bytes = boot_segment_bytes();
  // The heap hands memory out in units of mimalloc's segments; less than two serve nobody.
  budget.heap_min_bytes = kHeapReserveBytes + std::max(configuration.pool.heap_min_bytes,
                                                       2 * kHeapGranularityBytes);
  auto pool = make_pool_plan(budget, requests);
  if (!pool.ok()) return pool.error();
  PoolPlan plan = pool.take();
  SegmentPlan& heap = plan.segments[1];
  heap.carves = {{"heap:reserve", kHeapReserveBytes}, {heap.owner, heap.bytes - kHeapReserveBytes}};
  return AppliancePlan{std::move(plan), {configuration.shards.size(), kThreadStackBytes}};
}

}  // namespace bedplate
