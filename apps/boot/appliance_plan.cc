#include "apps/boot/appliance_plan.h"

#include <algorithm>
#include <cinttypes>
#include <set>
#include <string>
#include <tuple>

#include "alloc/confined_heap.h"
#include "apps/boot/boot_plan.h"
#include "apps/boot/outsiders.h"
#include "apps/boot/peers.h"
#include "apps/boot/runtime_counters.h"
#include "apps/boot/shard_group.h"
#include "apps/configuration/configuration_part.h"
#include "apps/services/service.h"
#include "apps/services/service_calls.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/layout.h"
#include "platform/numa.h"
#include "platform/text.h"
#include "platform/thread_stack.h"

namespace bedplate {

namespace {

Result<void> check_limits(const Configuration& configuration,
                          const std::vector<ServiceNeeds>& services) {
  std::vector<std::string> owners = {"heap", "heap:runtime"};
  const auto add = [&owners](std::string owner) {
    if (std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
  };
  for (const ServiceNeeds& service : services) {
    add("heap:" + service.name);
    for (const CarvePlan& kept : service.kept_heaps) add(std::string(kept.owner.view()));
  }
  for (const LimitSettings& limit : configuration.limits) {
    if (std::find(owners.begin(), owners.end(), limit.owner) != owners.end()) continue;
    std::string names;
    for (const std::string& owner : owners) add_word(&names, owner);
    return configuration_error_while("limiting the heap memory of %s", limit.owner.c_str())
        .set_answer("this configuration has no such owner")
        .set_cure("owner in [[limit]] may be: %s", names.c_str());
  }
  return {};
}

// The most segments that requests can take: boot and heap are segments, too.
constexpr size_t kRequestCountMax = kSegmentCountMax - 2;

Result<void> check_segment_count(const Configuration& configuration, size_t request_count) {
  if (request_count <= kRequestCountMax) return {};
  // A service has few segments; processes have one or two each, and can have many.
  const ProcessSettings* most = nullptr;
  uint64_t most_count = 0;
  for (const ProcessSettings& process : configuration.processes) {
    const uint64_t each = (process.heap_bytes != 0) + !process.trusted;
    if (each * process.place_count() <= most_count) continue;
    most_count = each * process.place_count();
    most = &process;
  }
  Error error = configuration_error_while("planning the segments of the pool")
                    .set_answer("there are %zu, but a pool has at most %u", request_count + 2,
                                kSegmentCountMax);
  if (most == nullptr) {
    return error.set_cure("use fewer groups, or configure less in the tables of services");
  }
  return error.set_cure("lower max_count%s of the process %s: it uses %" PRIu64 " of them, for "
                        "heaps and exchange",
                        most->place_count() > most->max_count ? " or spare_count" : "",
                        most->name.c_str(), most_count);
}

// Plans the configuration's services from the last to the first. An earlier service may offer
// networks, and knows by then what the later ones need of them.
Result<std::vector<ServiceNeeds>> plan_services(const Configuration& configuration) {
  std::vector<ServiceNeeds> all;
  for (auto next = configuration.services.rbegin(); next != configuration.services.rend(); ++next) {
    Service* service = *next;
    ServicePlan plan(configuration, *service);
    auto said = call_service(*service, "planning", [&] { return service->plan(plan); });
    if (!said.ok()) {
      Error error = said.error();
      error.kind = ErrorKind::kConfiguration;
      return error;
    }
    auto needs = plan.take();
    if (!needs.ok()) return needs.error();
    all.push_back(needs.take());
  }
  std::reverse(all.begin(), all.end());
  BP_ASSERT(all.size() == configuration.services.size());
  return all;
}

Result<MessageNames> number_messages(const std::vector<ServiceNeeds>& services) {
  MessageNames names;
  for (const ServiceNeeds& service : services) {
    for (const std::string& name : service.messages) {
      if (auto added = names.add(name); !added.ok()) {
        Error error = added.error();
        error.kind = ErrorKind::kConfiguration;
        return error;
      }
    }
  }
  return names;
}

bool is_shard_group_needed(const std::vector<ServiceNeeds>& services, size_t shard_count) {
  size_t count = 0;
  for (size_t shard = 0; shard < shard_count; ++shard) {
    count += std::any_of(services.begin(), services.end(), [shard](const ServiceNeeds& needs) {
      return needs.shards[shard].has_messages;
    });
  }
  return count > 1;
}

// Memory is found by its owner's name, so each name is unique.
Result<void> check_owners(const std::vector<SegmentRequest>& segments) {
  for (size_t i = 0; i < segments.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (!(segments[i].owner == segments[k].owner)) continue;
      return configuration_error_while("planning the segment %s", segments[i].owner.text)
          .set_answer("it is planned twice")
          .set_cure("rename one: all services and the runtime need different segment names");
    }
  }
  return {};
}

// Checks that one key alone takes over the sockets that the service manager passes to the process.
Result<void> check_activation(const std::vector<ServiceNeeds>& services) {
  std::string keys;
  uint32_t count = 0;
  for (const ServiceNeeds& service : services) {
    for (const ListenNeed& listen : service.listens) {
      for (const SocketAddress& address : listen.addresses) {
        if (address.kind != SocketAddress::Kind::kActivation) continue;
        add_word(&keys, listen.key + " in [" + service.name + "]");
        ++count;
      }
    }
  }
  if (count <= 1) return {};
  return configuration_error_while("taking over activated sockets")
      .set_answer("only one key can, but several would: %s", keys.c_str())
      .set_cure("keep \"activation:\" in one of them only");
}

// If sockets may go through epoll, each shard with files needs a thread for them. So does each
// shard with a file whose extents are read: io_uring cannot do that.
uint64_t file_thread_count(const Configuration& configuration,
                           const std::vector<ServiceNeeds>& services) {
  const bool has_rings = configuration.event_loop.sockets == SocketBackendChoice::kIoUring;
  std::vector<bool> has_thread(configuration.shards.size());
  for (const ServiceNeeds& service : services) {
    for (const FileNeed& file : service.files) {
      BP_ASSERT(file.shard < has_thread.size());
      if (!has_rings || file.plan.tells_extents) has_thread[file.shard] = true;
    }
  }
  return static_cast<uint64_t>(std::count(has_thread.begin(), has_thread.end(), true));
}

// The requests of services, groups, processes and peers. Errors: grants that the plan cannot
// satisfy.
Result<std::vector<SegmentRequest>> all_requests(const Configuration& configuration,
                                                 const std::vector<ServiceNeeds>& services,
                                                 const MessagesPlan& messages,
                                                 const PeersNeeds& peers) {
  std::vector<SegmentRequest> requests;
  for (const ServiceNeeds& service : services) {
    requests.insert(requests.end(), service.segments.begin(), service.segments.end());
  }
  if (is_shard_group_needed(services, configuration.shards.size())) {
    requests.push_back(plan_shard_group(configuration));
  }
  requests.insert(requests.end(), messages.requests.begin(), messages.requests.end());
  requests.insert(requests.end(), peers.segments.begin(), peers.segments.end());
  BP_TRY(check_segment_count(configuration, requests.size()));
  std::vector<SegmentRequest> segments = requests;
  segments.insert(segments.begin(), {"heap"});
  BP_TRY(check_grants(configuration, segments));
  BP_TRY(keep_from_outsiders(configuration, &requests));
  segments.insert(segments.begin(), {"boot"});  // nobody plans it; a crash dump needs it
  BP_TRY(check_owners(segments));
  BP_TRY(check_segments_of_parts(configuration, segments));
  BP_ASSERT(segments.size() == requests.size() + 2);  // no other requests were added
  return requests;
}

// The carves of the heap: the runtime's reserve, the shared part, and the parts that are kept for
// single owners.
std::vector<CarvePlan> plan_heap(const std::vector<ServiceNeeds>& services, uint64_t bytes) {
  std::vector<CarvePlan> carves = {{"heap:reserve", kHeapReserveBytes}, {"heap", 0}};
  for (const ServiceNeeds& service : services) {
    for (const CarvePlan& kept : service.kept_heaps) {
      const OwnerName owner(kKeptHeap, kept.owner.view());
      const auto is_it = [&](const CarvePlan& carve) { return carve.owner == owner; };
      const auto there = std::find_if(carves.begin(), carves.end(), is_it);
      if (there == carves.end()) {
        carves.push_back({owner, kept.bytes});
      } else {
        there->bytes += kept.bytes;
      }
    }
  }
  BP_ASSERT(bytes > sum_of_carves(carves));  // PoolBudget::heap_min_bytes sees to it
  // Each part begins at a multiple of the granularity. The last one has the odd bytes.
  const uint64_t shared_bytes = bytes - sum_of_carves(carves);
  const uint64_t odd_bytes = shared_bytes % kHeapGranularityBytes;
  carves[1].bytes = shared_bytes - odd_bytes;
  carves.back().bytes += odd_bytes;
  return carves;
}

}  // namespace

bool AppliancePlan::is_valid(const Configuration& configuration) const noexcept {
  const auto has = [this](const OwnerName& owner, uint64_t bytes) {
    return std::any_of(pool.segments.begin(), pool.segments.end(), [&](const auto& segment) {
      return segment.owner == owner && bytes <= segment.bytes;
    });
  };
  if (!pool.is_valid() || pool.segments[1].carved_bytes() != pool.segments[1].bytes) return false;
  if (pool.total_bytes() > configuration.pool.bytes) return false;
  if (stacks.count < configuration.shards.size()) return false;
  if (services.size() != configuration.services.size()) return false;
  for (size_t i = 0; i < services.size(); ++i) {
    const ServiceNeeds& needs = services[i];
    if (needs.service != configuration.services[i]) return false;
    if (needs.shards.size() != configuration.shards.size()) return false;
    for (const SegmentRequest& request : needs.segments) {
      if (!has(request.owner, request.carved_bytes())) return false;
    }
  }
  for (const GroupPlan& group : groups) {
    if (!has(group.segment, GroupLayout(group.shape).bytes())) return false;
  }
  std::set<std::tuple<std::string_view, std::string_view, std::string_view>> names;
  const auto is_new = [&names](const CounterSet& set) {
    return set.is_spare || names.emplace(set.owner, set.name, set.instance).second;
  };
  return std::all_of(runtime_counters.begin(), runtime_counters.end(), is_new) &&
         std::all_of(services.begin(), services.end(), [&](const ServiceNeeds& service) {
           return std::all_of(service.counters.begin(), service.counters.end(), is_new);
         });
}

ShardNeeds AppliancePlan::needs_on(uint32_t shard) const noexcept {
  ShardNeeds sum;
  for (const ServiceNeeds& service : services) {
    BP_ASSERT(shard < service.shards.size());
    sum.connections += service.shards[shard].connections;
    sum.timers += service.shards[shard].timers;
    sum.sources += service.shards[shard].sources;
    sum.watches += service.shards[shard].watches;
    sum.has_messages |= service.shards[shard].has_messages;
  }
  return sum;
}

ShardPlan AppliancePlan::shard_plan(uint32_t shard, const std::string& name) const {
  ShardPlan plan(name);
  for (const ServiceNeeds& service : services) {
    BP_ASSERT(shard < service.shards.size());
    const ShardNeeds& needs = service.shards[shard];
    plan.add(heap_owner_of(*service.service), service.service->name(),
             {needs.timers, needs.connections, needs.watches});
  }
  return plan;
}

std::string AppliancePlan::socket_users(uint32_t shard) const {
  std::string names;
  for (const ServiceNeeds& service : services) {
    BP_ASSERT(shard < service.shards.size());
    const ShardNeeds& needs = service.shards[shard];
    if (needs.connections + needs.watches > 0) add_word(&names, service.name);
  }
  return names.empty() ? names : " (" + names + ")";
}

static TraceShape plan_traces(const Configuration& configuration,
                              std::span<const ServiceNeeds> services) {
  TraceShape shape;
  shape.record_count = configuration.appliance.trace_requests;
  BP_ASSERT(configuration.shards.size() <= kShardCountMax);
  for (const ShardSettings& shard : configuration.shards) shape.shards.push_back(shard.name);
  for (const ServiceNeeds& service : services) {
    if (service.trace) shape.sources.push_back({service.name, *service.trace});
  }
  if (shape.sources.empty()) shape.record_count = 0;
  BP_ASSERT(shape.sources.size() <= 256);  // a record has 8 bits for the source
  return shape;
}

std::vector<CounterSet> AppliancePlan::counters() const {
  std::vector<CounterSet> all = runtime_counters;
  for (const ServiceNeeds& service : services) {
    all.insert(all.end(), service.counters.begin(), service.counters.end());
  }
  return all;
}

uint64_t AppliancePlan::capabilities() const noexcept {
  uint64_t all = 0;
  for (const ServiceNeeds& service : services) all |= service.capabilities;
  return all;
}

std::vector<std::string> AppliancePlan::vfio_devices() const {
  std::vector<std::string> all;
  for (const ServiceNeeds& service : services) {
    all.insert(all.end(), service.vfio_devices.begin(), service.vfio_devices.end());
  }
  return all;
}

Result<AppliancePlan> plan_appliance(const Configuration& configuration) {
  BP_TRY_ASSIGN(auto services, plan_services(configuration));
  BP_TRY(check_limits(configuration, services));
  BP_TRY(check_activation(services));
  BP_TRY_ASSIGN(auto names, number_messages(services));
  const bool has_shard_group = is_shard_group_needed(services, configuration.shards.size());
  BP_TRY_ASSIGN(auto messages, plan_messages(configuration));
  const PeersPart* part = peers_part();
  PeersNeeds peers = part == nullptr ? PeersNeeds() : part->plan(configuration);
  BP_TRY_ASSIGN(const auto requests, all_requests(configuration, services, messages, peers));
  const PoolSettings& settings = configuration.pool;
  PoolBudget budget;
  budget.bytes = settings.bytes;
  budget.unit = smallest_page(settings.pages);
  budget.boot_bytes = plan_boot_bytes(configuration, services);
  budget.boot_page = boot_page();
  // The thread of each shard takes a unit of the heap with its first request.
  const uint64_t thread_bytes = configuration.shards.size() * kHeapGranularityBytes;
  budget.heap_min_bytes =
      std::max(settings.heap_min_bytes, kHeapReserveBytes + std::max(kHeapBytesMin, thread_bytes));
  for (const ServiceNeeds& service : services) {
    budget.heap_min_bytes += service.heap_bytes + sum_of_carves(service.kept_heaps);
  }
  budget.heap = {settings.heap_pages.value_or(settings.pages),
                 settings.heap_node.value_or(node_of_cpu(configuration.shards[0].cpu))};
  budget.free_1gib_pages = [](int node) {
    return hugepage_counts(PageSize::k1GiB, node).available_count;
  };
  auto pool = make_pool_plan(budget, requests);
  if (!pool.ok()) return pool.error();
  PoolPlan plan = pool.take();
  SegmentPlan& heap = plan.segments[1];
  heap.carves = plan_heap(services, heap.bytes);
  uint64_t thread_count = (messages.groups.empty() ? 0 : kMessagingThreadCount) + peers.threads +
                          file_thread_count(configuration, services);
  for (const ServiceNeeds& service : services) thread_count += service.threads;
  std::vector<VerbsContextPlan> verbs =
      part == nullptr ? std::vector<VerbsContextPlan>() : part->plan_contexts(configuration, plan);
  std::vector<std::string> groups;
  for (const GroupPlan& group : messages.groups) {
    groups.emplace_back(group_name(group.segment));
  }
  std::vector<CounterSet> runtime_counters =
      plan_runtime_counters({configuration, plan, services, groups, peers, has_shard_group});
  AppliancePlan all = {std::move(plan),
                       {configuration.shards.size() + thread_count, kThreadStackBytes},
                       std::move(messages.groups),
                       std::move(peers),
                       std::move(verbs),
                       std::move(services),
                       std::move(names),
                       has_shard_group,
                       std::move(runtime_counters),
                       {}};
  all.traces = plan_traces(configuration, all.services);
  BP_ASSERT(all.is_valid(configuration));
  return all;
}

}  // namespace bedplate
