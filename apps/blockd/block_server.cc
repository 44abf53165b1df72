#include "apps/blockd/block_server.h"

#include <algorithm>
#include <bit>

#include "platform/assert.h"
#include "platform/short_name.h"

namespace bedplate {
namespace {

constexpr uint64_t kDiscardBytes = 64 * kKiB;

// Every request of a shard may be in one lane at the same time, so a push can never fail.
uint64_t lane_capacity(const BlockServerOptions& options) noexcept {
  return std::bit_ceil(uint64_t{connections_of_each(options)} * options.requests_per_connection);
}

OwnerName volume_owner(const BlockServerOptions& options, size_t index) {
  return {"volume", short_volume_name(options, index)};
}

// The owner of the memory of a stored volume, besides its buffers.
OwnerName queue_owner(const BlockServerOptions& options, size_t index) {
  return {"requests", short_volume_name(options, index)};
}

constexpr const char* kSegmentOwner = "blockd";

struct ServerCarves {
  CarvePlan connections;
  CarvePlan discard;
};

// `shard`, here and below: the number of the shard among those of the connections. The names of the
// first are those of a server on one shard.
ServerCarves carves_of(const BlockServerOptions& options, uint32_t shard) {
  const std::string number = shard == 0 ? "" : "-" + std::to_string(shard);
  const uint64_t bytes = connections_of_each(options) *
                         BlockConnections::stride_bytes(options.requests_per_connection);
  return {{OwnerName("connections" + number, "blockd"), bytes},
          {OwnerName("buffers", "blockd.discard" + number), kDiscardBytes}};
}

// Two lanes between two shards.
struct LaneCarves {
  CarvePlan there;
  CarvePlan back;
};

// Those to a shard that has volumes, by its number.
LaneCarves lanes_of(const BlockServerOptions& options, uint32_t shard, uint32_t volumes) {
  const uint64_t lane_bytes = BlockRequestFifo::bytes_for(lane_capacity(options));
  const std::string number =
      (shard == 0 ? "" : std::to_string(shard) + "-") + std::to_string(volumes);
  return {{OwnerName("fifo", "blockd.requests-" + number), lane_bytes},
          {OwnerName("fifo", "blockd.replies-" + number), lane_bytes}};
}

// Those to the limits. Requires: `shard` is not theirs, the first one.
LaneCarves limit_lanes_of(const BlockServerOptions& options, uint32_t shard) {
  const uint64_t lane_bytes = BlockRequestFifo::bytes_for(lane_capacity(options));
  const std::string number = std::to_string(shard);
  return {{OwnerName("fifo", "blockd.limited-" + number), lane_bytes},
          {OwnerName("fifo", "blockd.passed-" + number), lane_bytes}};
}

uint32_t volume_shard_count(const BlockServerOptions& options) noexcept {
  uint32_t count = 0;
  for (const VolumePlan& volume : options.volumes) {
    count = std::max(count, volume.shard + 1);
  }
  return count;
}

// The segment among `requests` on the node of `placement`; it is added if there is none. A pool has
// few segments.
SegmentRequest& segment_near(const Placement& placement, std::vector<SegmentRequest>& requests) {
  for (SegmentRequest& each : requests) {
    if (each.placement.node == placement.node) return each;
  }
  const OwnerName owner = requests.empty()
                              ? OwnerName(kSegmentOwner)
                              : OwnerName("node-" + std::to_string(placement.node), kSegmentOwner);
  return requests.emplace_back(SegmentRequest{owner, {}, placement});
}

}  // namespace

std::string short_volume_name(const BlockServerOptions& options, size_t index) {
  return short_name(options.volumes[index].name, index);
}

std::string short_limit_name(const BlockServerOptions& options, size_t index) {
  return short_name(options.limits[index].name, index);
}

uint32_t connections_of_each(const BlockServerOptions& options) noexcept {
  const auto shard_count = static_cast<uint32_t>(options.placements.size());
  return (options.max_connections + shard_count - 1) / shard_count;
}

std::vector<SegmentRequest> plan_block_server(const BlockServerOptions& options) {
  std::vector<SegmentRequest> requests;
  for (uint32_t shard = 0; shard < options.placements.size(); ++shard) {
    std::vector<CarvePlan>& carves = segment_near(options.placements[shard], requests).carves;
    const ServerCarves its = carves_of(options, shard);
    carves.push_back(its.connections);
    carves.push_back(its.discard);
    for (uint32_t i = 0; i < volume_shard_count(options); ++i) {
      const LaneCarves lanes = lanes_of(options, shard, i);
      carves.push_back(lanes.there);
      carves.push_back(lanes.back);
    }
    if (shard == 0) continue;
    const LaneCarves lanes = limit_lanes_of(options, shard);
    carves.push_back(lanes.there);
    carves.push_back(lanes.back);
  }
  for (size_t i = 0; i < options.volumes.size(); ++i) {
    const OwnerName owner = volume_owner(options, i);
    const VolumePlan& volume = options.volumes[i];
    if (volume.queue.has_value()) {
      requests.push_back({owner,
                          {{owner, volume.queue->buffer_bytes},
                           {queue_owner(options, i), StoreQueue::bytes_for(*volume.queue)}},
                          volume.placement});
      continue;
    }
    requests.push_back({owner, {{owner, volume.bytes}}, volume.placement});
  }
  return requests;
}

Result<void> BlockServer::take_memory(const Carve& carve) {
  for (uint32_t shard = 0; shard < planned_count(); ++shard) {
    const ServerCarves carves = carves_of(options_, shard);
    BP_TRY_ASSIGN(const auto connections, carve(carves.connections.owner));
    BP_TRY_ASSIGN(const auto discard, carve(carves.discard.owner));
    memory_.push_back({connections, discard});
  }
  return {};
}

Result<void> BlockServer::make_shards(const Carve& carve) {
  BP_ASSERT(wiring_.volume_loops.size() == volume_shard_count(options_));
  lanes_.resize(planned_count());
  for (EventLoop* loop : wiring_.volume_loops) {
    const auto number = static_cast<uint32_t>(shards_.size());
    VolumeShard& shard = shards_.emplace_back(*this, number);
    for (uint32_t i = 0; i < planned_count(); ++i) {
      const LaneCarves carves = lanes_of(options_, i, number);
      BP_TRY_ASSIGN(const auto there_memory, carve(carves.there.owner));
      BP_TRY_ASSIGN(const auto back_memory, carve(carves.back.owner));
      auto* const there = BlockRequestFifo::create(there_memory, lane_capacity(options_));
      auto* const back = BlockRequestFifo::create(back_memory, lane_capacity(options_));
      EventLoop* const connections_loop = wiring_.connections[i].loop;
      const bool crosses = loop != connections_loop;
      lanes_[i].push_back({{there, crosses ? &loop->doorbell() : nullptr}, back});
      shard.lanes.push_back({there, {back, crosses ? &connections_loop->doorbell() : nullptr}});
    }
    shard.service.create(shard.lanes, *loop);
  }
  return {};
}

Result<void> BlockServer::make_far_limits(const Carve& carve) {
  for (uint32_t shard = 1; shard < planned_count(); ++shard) {
    const LaneCarves carves = limit_lanes_of(options_, shard);
    BP_TRY_ASSIGN(const auto there, carve(carves.there.owner));
    BP_TRY_ASSIGN(const auto back, carve(carves.back.owner));
    far_limits_.push_back(std::make_unique<FarLimits>());
    far_limits_.back()->create({.home = static_cast<uint8_t>(shard),
                                .limits = &limits_,
                                .limits_loop = wiring_.connections[0].loop,
                                .connections_loop = wiring_.connections[shard].loop,
                                .there = BlockRequestFifo::create(there, lane_capacity(options_)),
                                .back = BlockRequestFifo::create(back, lane_capacity(options_))});
  }
  return {};
}

Result<void> BlockServer::add_volumes(const Carve& carve, const OpenVolume& open_volume) {
  volumes_ = std::vector<Volume>(options_.volumes.size());
  for (size_t i = 0; i < volumes_.size(); ++i) {
    const VolumePlan& plan = options_.volumes[i];
    Volume& volume = volumes_[i];
    VolumeShard& shard = shards_[plan.shard];
    volume.plan = &plan;
    volume.is_read_only = plan.read_only;
    volume.limit = limits_.find(LimitKind::kVolume, plan.name);
    volume.tenant_limit = limits_.find(LimitKind::kTenant, plan.tenant);
    volume.behind_limits.push_back(&lanes_[0][plan.shard].requests);
    for (const auto& far : far_limits_) volume.behind_limits.push_back(&far->back());
    BP_TRY(open_volume(i, volume));
    BP_TRY_ASSIGN(const auto memory, carve(volume_owner(options_, i)));
    if (plan.queue.has_value()) {
      BP_TRY_ASSIGN(const auto tasks, carve(queue_owner(options_, i)));
      volume.queue = std::make_unique<StoreQueue>();
      volume.queue->create(*volume.store, *plan.queue, memory, tasks, shard.lanes,
                           *wiring_.volume_loops[plan.shard], *volume.store_counters);
    } else {
      volume.store = std::make_unique<MemoryStore>(memory.data(), plan.bytes);
    }
  }
  return {};
}

void BlockServer::make_connections() {
  for (uint32_t i = 0; i < planned_count(); ++i) {
    if (i > 0) more_.push_back(std::make_unique<BlockConnections>());
    connections(i).create({.number = static_cast<uint8_t>(i),
                           .connection_count = connections_of_each(options_),
                           .requests_per_connection = options_.requests_per_connection,
                           .handshake_timeout_ns = options_.handshake_timeout_ns,
                           .client_timeout_ns = options_.client_timeout_ns,
                           .memory = memory_[i].connections,
                           .discard_memory = memory_[i].discard,
                           .volumes = volumes_,
                           .lanes = lanes_[i],
                           .state = &state_,
                           .limits = &limits_,
                           .far_limits = i == 0 ? nullptr : far_limits_[i - 1].get()},
                          wiring_.connections[i]);
    if (i > 0) connections(i - 1).join(connections(i));
  }
}

Result<void> BlockServer::create(const Carve& carve, const OpenVolume& open_volume,
                                 const BlockServerOptions& options,
                                 const BlockServerWiring& wiring) {
  BP_ASSERT(!options.placements.empty() && options.placements.size() <= kConnectionShardsMax);
  BP_ASSERT(wiring.connections.size() == options.placements.size());
  options_ = options;
  wiring_ = wiring;
  BP_TRY(take_memory(carve));
  BP_TRY(make_shards(carve));
  limits_.create(options_.limits, wiring_.limit_counters, *wiring_.connections[0].loop);
  state_.are_limits_on = limits_.are_on();
  BP_TRY(make_far_limits(carve));
  BP_TRY(add_volumes(carve, open_volume));
  make_connections();
  return {};
}

// Releases requests that are held or wait for a limit, so that they are answered, too.
void BlockServer::request_drain() noexcept {
  for (uint32_t i = 0; i < connections_count(); ++i) connections(i).request_drain();
  for (VolumeShard& shard : shards_) wiring_.volume_loops[shard.number]->submit(shard.release_call);
}

// A shard is not drained while a client is on its way from it, so none is between two shards once
// all are drained.
bool BlockServer::is_drained() const noexcept {
  return first_.is_drained() && std::all_of(more_.begin(), more_.end(),
                                            [](const auto& each) { return each->is_drained(); });
}

void BlockServer::end() noexcept {
  for (uint32_t i = 0; i < connections_count(); ++i) connections(i).end();
}

void BlockServer::VolumeShard::release_held(void* shard) noexcept {
  auto& self = *static_cast<VolumeShard*>(shard);
  BlockServer& server = self.server;
  for (size_t i = 0; i < server.volumes_.size(); ++i) {
    if (server.volumes_[i].plan->shard == self.number) server.set_held(i, false);
  }
}

std::optional<size_t> BlockServer::find_volume(std::string_view name) const noexcept {
  for (size_t i = 0; i < volumes_.size(); ++i) {
    if (volumes_[i].plan->name == name) return i;
  }
  return {};
}

void BlockServer::follow_all() noexcept {
  first_.follow();
  for (const auto& each : more_) each->request_follow();
}

void BlockServer::set_read_only(size_t volume, bool is_read_only) noexcept {
  BP_ASSERT(connections_loop().is_own_thread() && volume < volumes_.size());
  volumes_[volume].is_read_only.store(is_read_only, std::memory_order_relaxed);
  follow_all();
}

void BlockServer::set_accepting(bool is_accepting) noexcept {
  BP_ASSERT(connections_loop().is_own_thread());
  state_.is_accepting.store(is_accepting, std::memory_order_relaxed);
  follow_all();
}

void BlockServer::set_limit(RequestLimit& limit, const LimitRates& rates) noexcept {
  BP_ASSERT(connections_loop().is_own_thread() && !first_.is_draining());
  limit.set(rates);
  state_.are_limits_on.store(limits_.are_on(), std::memory_order_relaxed);
  follow_all();
}

void BlockServer::add_up_counters() noexcept {
  if (more_.empty()) return;
  for (size_t i = 0; i < volumes_.size(); ++i) {
    const auto part = [this, i](uint32_t shard) -> const VolumeRequestCounters& {
      return *wiring_.connections[shard].volumes[i];
    };
    add_up(planned_count(), part, volumes_[i].counters->requests);
  }
}

}  // namespace bedplate
