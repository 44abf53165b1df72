#include "apps/boot/appliance_plan.h"

#include <algorithm>
#include <cinttypes>
#include <string>

#include "alloc/confined_heap.h"
#include "apps/boot/outsiders.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/layout.h"
#include "platform/numa.h"
#include "platform/text.h"
#include "platform/thread_stack.h"

namespace bedplate {

BlockServerOptions block_server_options(const Configuration& configuration) {
  const BlockdSettings& settings = configuration.blockd;
  const PageWish pages = configuration.pool.pages;
  const auto node_of_shard = [&](uint32_t index) {
    return node_of_cpu(configuration.shards[index].cpu);
  };
  BlockServerOptions options;
  options.placement = {pages, node_of_shard(settings.connections_shard)};
  for (const VolumeSettings& volume : settings.volumes) {
    const Placement placement = {volume.pages.value_or(pages),
                                 volume.node.value_or(node_of_shard(settings.volumes_shard)),
                                 volume.pages.has_value()};
    options.volumes.push_back({volume.name, volume.bytes, volume.read_only, placement});
  }
  options.max_connections = settings.max_connections;
  options.requests_per_connection = settings.requests_per_connection;
  options.handshake_timeout_ns = settings.handshake_timeout_ms * kNsPerMs;
  options.client_timeout_ns = settings.client_timeout_s * kNsPerSecond;
  return options;
}

namespace {

Result<void> check_limits(const Configuration& configuration) {
  std::vector<std::string> owners = {"heap", "heap:runtime"};
  if (configuration.blockd.enabled) owners.push_back(kBlockdHeapOwner);
  for (const LimitSettings& limit : configuration.limits) {
    if (std::find(owners.begin(), owners.end(), limit.owner) != owners.end()) continue;
    std::string names;
    for (const std::string& owner : owners) add_word(&names, owner);
    Error error;
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("limiting the heap memory of %s", limit.owner.c_str());
    error.set_answer("this configuration has no such owner");
    return error.set_cure("owner in [[limit]] may be: %s", names.c_str());
  }
  return {};
}

// Boot and heap are segments, too; so many more the pool can have.
constexpr size_t kRequestCountMax = kSegmentCountMax - 2;

Result<void> check_segment_count(const Configuration& configuration, size_t request_count) {
  if (request_count <= kRequestCountMax) return {};
  // Volumes are few: what can be many is one or two for each process.
  const ProcessSettings* most = nullptr;
  uint64_t most_count = 0;
  for (const ProcessSettings& process : configuration.processes) {
    const uint64_t each = (process.heap_bytes != 0) + !process.trusted;
    if (each * process.place_count() <= most_count) continue;
    most_count = each * process.place_count();
    most = &process;
  }
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("planning the segments of the pool");
  error.set_answer("they are %zu, a pool has at most %u", request_count + 2, kSegmentCountMax);
  if (most == nullptr) return error.set_cure("have fewer groups or volumes");
  return error.set_cure("lower max_count%s of the process %s: it takes %" PRIu64 " of them, for "
                        "heaps and exchange",
                        most->place_count() > most->max_count ? " or spare_count" : "",
                        most->name.c_str(), most_count);
}

// What a dump is to keep must be there to be kept.
Result<void> check_dump_owners(const CrashSettings& crash,
                               const std::vector<SegmentRequest>& segments) {
  for (const std::string& text : crash.owners) {
    const auto is_named = [&text](const SegmentRequest& segment) {
      return names_segment(text, segment.owner);
    };
    if (std::any_of(segments.begin(), segments.end(), is_named)) continue;
    std::string names;
    for (const SegmentRequest& segment : segments) add_word(&names, segment.owner.view());
    Error error;
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("keeping %s in a dump", text.c_str());
    error.set_answer("this configuration has no such segment");
    return error.set_cure("owners in [crash] may name: %s", names.c_str());
  }
  return {};
}

// Of services, groups and processes. Errors: what these say that the plan cannot grant.
Result<std::vector<SegmentRequest>> all_requests(const Configuration& configuration,
                                                 const MessagesPlan& messages) {
  std::vector<SegmentRequest> requests;
  if (configuration.blockd.enabled) {
    requests = plan_block_server(block_server_options(configuration));
  }
  requests.insert(requests.end(), messages.requests.begin(), messages.requests.end());
  const std::vector<SegmentRequest> peers = plan_peers(configuration);
  requests.insert(requests.end(), peers.begin(), peers.end());
  BP_TRY(check_segment_count(configuration, requests.size()));
  std::vector<SegmentRequest> segments = requests;
  segments.insert(segments.begin(), {"heap"});
  BP_TRY(check_grants(configuration, segments));
  BP_TRY(keep_from_outsiders(configuration, &requests));
  segments.insert(segments.begin(), {"boot"});  // nobody's to grant, but worth a look after a crash
  BP_TRY(check_dump_owners(configuration.crash, segments));
  return requests;
}

}  // namespace

Result<AppliancePlan> plan_appliance(const Configuration& configuration) {
  BP_TRY(check_limits(configuration));
  auto messages = plan_messages(configuration);
  BP_TRY(messages);
  auto requests = all_requests(configuration, messages.value());
  BP_TRY(requests);
  const PoolSettings& settings = configuration.pool;
  PoolBudget budget;
  budget.bytes = settings.bytes;
  budget.unit = smallest_page(settings.pages);
  budget.boot_bytes = boot_segment_bytes();
  budget.heap_min_bytes = std::max(settings.heap_min_bytes, kHeapReserveBytes + kHeapBytesMin);
  budget.heap = {settings.heap_pages.value_or(settings.pages),
                 settings.heap_node.value_or(node_of_cpu(configuration.shards[0].cpu))};
  budget.free_1gib_pages = [](int node) {
    return hugepage_counts(PageSize::k1GiB, node).available_count;
  };
  auto pool = make_pool_plan(budget, requests.value());
  if (!pool.ok()) return pool.error();
  PoolPlan plan = pool.take();
  SegmentPlan& heap = plan.segments[1];
  heap.carves = {{"heap:reserve", kHeapReserveBytes}, {heap.owner, heap.bytes - kHeapReserveBytes}};
  const uint64_t thread_count = (messages.value().groups.empty() ? 0 : kMessagingThreadCount) +
                                (configuration.verbs.enabled ? kPeersThreadCount : 0);
  std::vector<VerbsContextPlan> verbs = plan_verbs_contexts(configuration, plan);
  return AppliancePlan{std::move(plan),
                       {configuration.shards.size() + thread_count, kThreadStackBytes},
                       std::move(messages.value().groups),
                       std::move(verbs)};
}

}  // namespace bedplate
