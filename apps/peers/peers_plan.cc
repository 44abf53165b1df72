#include "apps/peers/peers_plan.h"

#include <algorithm>

#include "apps/boot/messages_plan.h"
#include "apps/boot/outsiders.h"
#include "transport/verbs/channel/verbs_provider.h"
#include "transport/verbs/connect/link_connector.h"

namespace bedplate {
namespace {

constexpr uint64_t kThreadCount = 1;  // the connector

void add_region(VerbsContextPlan* context, uint64_t bytes) {
  ++context->region_count;
  context->locked_bytes += bytes;
}

VerbsContextPlan appliance_context(const Configuration& configuration, const PoolPlan& pool) {
  const VerbsSettings& verbs = verbs_settings(configuration);
  VerbsContextPlan context;
  context.process = configuration.appliance.name;
  for (const SegmentPlan& segment : pool.segments) {
    if (segment.is_for_devices) add_region(&context, segment.bytes);
  }
  add_region(&context, verbs_shared_bytes(verbs_shape(verbs)));
  context.region_count += VerbsProvider::kExportCount - 1;
  for (const VerbsExportSettings& one : verbs.exports) add_region(&context, one.bytes);
  if (verbs.remote == RemoteHeap::kRead) {
    add_region(&context, pool.segments[0].bytes);
    add_region(&context, pool.segments[1].bytes);
  }
  return context;
}

// Counts the process's segment 0, its heap, and all other segments that it may write and that
// devices may use.
VerbsContextPlan process_context(const Configuration& configuration, const ProcessSettings& process,
                                 const PoolPlan& pool) {
  VerbsContextPlan context;
  context.process = process.name;
  context.count = process.max_count;
  add_region(&context, pool.segments[0].bytes);
  const OwnerName heap = instance_owner("heap", process, 0);
  for (const SegmentPlan& segment : pool.segments) {
    const bool is_shared = segment.is_for_devices &&
                           !names_segment("heap:" + process.name, segment.owner) &&
                           may_write(configuration, process, segment.owner);
    if (is_shared || segment.owner == heap) add_region(&context, segment.bytes);
  }
  return context;
}

}  // namespace

VerbsShape verbs_shape(const VerbsSettings& settings) noexcept {
  return {.peer_count_max = settings.max_peers,
          .window = settings.window,
          .message_bytes = settings.message_bytes,
          .operation_count_max = settings.operations,
          .bounce_bytes = settings.bounce_bytes,
          .datagram_count = settings.datagrams};
}

PeersNeeds plan_peers(const Configuration& configuration) {
  const VerbsSettings& verbs = verbs_settings(configuration);
  if (!verbs.enabled) return {};
  PeersNeeds needs;
  needs.is_there = true;
  needs.is_required = verbs.required;
  needs.shard = verbs.shard;
  needs.threads = kThreadCount;
  needs.descriptors = LinkConnector::socket_count_max(verbs.max_peers);
  for (const VerbsPeerSettings& peer : verbs.peers) needs.names.push_back(peer.name);
  const PageWish pages = configuration.pool.pages;
  const int node = node_of_cpu(configuration.shards[verbs.shard].cpu);
  const uint64_t bytes = verbs_memory_bytes(verbs_shape(verbs));
  needs.segments = {{"verbs", {{"verbs", bytes}}, {pages, node}}};
  for (const VerbsExportSettings& one : verbs.exports) {
    const OwnerName owner("export", one.name);
    needs.segments.push_back(
        {owner, {{owner, one.bytes}}, {one.pages.value_or(pages), node, one.pages.has_value()}});
  }
  return needs;
}

std::vector<VerbsContextPlan> plan_verbs_contexts(const Configuration& configuration,
                                                  const PoolPlan& pool) {
  if (!verbs_settings(configuration).enabled) return {};
  std::vector<VerbsContextPlan> contexts = {appliance_context(configuration, pool)};
  for (const ProcessSettings& process : configuration.processes) {
    if (process.verbs) contexts.push_back(process_context(configuration, process, pool));
  }
  return contexts;
}

std::vector<VerbsDemand> plan_verbs_demands(const VerbsSettings& settings,
                                            const std::vector<VerbsContextPlan>& contexts,
                                            const ibv_device_attr& limits, bool uses_windows) {
  std::vector<VerbsDemand> demands =
      VerbsProvider::demands(verbs_shape(settings), limits, uses_windows);
  uint64_t context_count = 0;
  uint64_t region_count = 0;
  for (const VerbsContextPlan& context : contexts) {
    context_count += context.count;
    region_count += context.count * context.region_count;
  }
  const auto limit = [](int value) { return static_cast<uint64_t>(std::max(value, 0)); };
  demands.push_back({"regions, including those of processes that join,",
                     "lower max_count of [[process]], or use fewer exports", region_count,
                     limit(limits.max_mr)});
  demands.push_back({"protection domains, including those of processes that join,",
                     "lower max_count of [[process]]", context_count, limit(limits.max_pd)});
  return demands;
}

}  // namespace bedplate
