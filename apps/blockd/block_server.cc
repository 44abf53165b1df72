#include "apps/blockd/block_server.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <new>

#include "platform/assert.h"
#include "platform/short_name.h"

namespace bedplate {
namespace {

constexpr uint64_t kDiscardBytes = 64 * kKiB;

// Every request may be in one lane at the same time, so a push can never fail.
uint64_t lane_capacity(const BlockServerOptions& options) noexcept {
  return std::bit_ceil(uint64_t{options.max_connections} * options.requests_per_connection);
}

uint64_t connection_stride(const BlockServerOptions& options) noexcept {
  return align_up(sizeof(nbd::Connection), kCacheLineBytes) +
         align_up(options.requests_per_connection * sizeof(BlockRequest), kCacheLineBytes);
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

ServerCarves carves_of(const BlockServerOptions& options) {
  return {{"connections:blockd", options.max_connections * connection_stride(options)},
          {"buffers:blockd.discard", kDiscardBytes}};
}

// The two lanes of a shard that has volumes.
struct LaneCarves {
  CarvePlan requests;
  CarvePlan replies;
};

LaneCarves lanes_of(const BlockServerOptions& options, uint32_t shard) {
  const uint64_t lane_bytes = BlockRequestFifo::bytes_for(lane_capacity(options));
  const std::string number = std::to_string(shard);
  return {{OwnerName("fifo", "blockd.requests-" + number), lane_bytes},
          {OwnerName("fifo", "blockd.replies-" + number), lane_bytes}};
}

uint32_t volume_shard_count(const BlockServerOptions& options) noexcept {
  uint32_t count = 0;
  for (const VolumePlan& volume : options.volumes) {
    count = std::max(count, volume.shard + 1);
  }
  return count;
}

}  // namespace

std::string short_volume_name(const BlockServerOptions& options, size_t index) {
  return short_name(options.volumes[index].name, index);
}

std::string short_limit_name(const BlockServerOptions& options, size_t index) {
  return short_name(options.limits[index].name, index);
}

std::vector<SegmentRequest> plan_block_server(const BlockServerOptions& options) {
  const ServerCarves carves = carves_of(options);
  std::vector<SegmentRequest> requests;
  requests.push_back({kSegmentOwner, {carves.connections, carves.discard}, options.placement});
  for (uint32_t i = 0; i < volume_shard_count(options); ++i) {
    const LaneCarves lanes = lanes_of(options, i);
    requests.back().carves.push_back(lanes.requests);
    requests.back().carves.push_back(lanes.replies);
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
  const ServerCarves carves = carves_of(options_);
  BP_TRY_ASSIGN(const auto connections, carve(carves.connections.owner));
  BP_TRY_ASSIGN(const auto discard, carve(carves.discard.owner));
  connection_memory_ = connections;
  environment_.discard_memory = discard;
  return {};
}

Result<void> BlockServer::make_shards(const Carve& carve) {
  BP_ASSERT(wiring_.volume_loops.size() == volume_shard_count(options_));
  for (EventLoop* loop : wiring_.volume_loops) {
    const auto number = static_cast<uint32_t>(shards_.size());
    const LaneCarves lanes = lanes_of(options_, number);
    BP_TRY_ASSIGN(const auto requests, carve(lanes.requests.owner));
    BP_TRY_ASSIGN(const auto replies, carve(lanes.replies.owner));
    const bool is_own = loop == wiring_.connections_loop;
    VolumeShard& shard = shards_.emplace_back(*this, number);
    shard.requests.fifo = BlockRequestFifo::create(requests, lane_capacity(options_));
    shard.requests.doorbell = is_own ? nullptr : &loop->doorbell();
    shard.replies = BlockRequestFifo::create(replies, lane_capacity(options_));
    Doorbell* const doorbell = is_own ? nullptr : &wiring_.connections_loop->doorbell();
    shard.lanes[0] = {shard.requests.fifo, {shard.replies, doorbell}};
    shard.service.create(shard.lanes, *loop);
  }
  return {};
}

Result<void> BlockServer::add_volumes(const Carve& carve, const OpenVolume& open_volume) {
  volumes_ = std::vector<Volume>(options_.volumes.size());
  exports_.resize(volumes_.size());
  for (size_t i = 0; i < volumes_.size(); ++i) {
    const VolumePlan& plan = options_.volumes[i];
    Volume& volume = volumes_[i];
    VolumeShard& shard = shards_[plan.shard];
    volume.plan = &plan;
    volume.requests = &shard.requests;
    volume.limit = limits_.find(LimitKind::kVolume, plan.name);
    volume.tenant_limit = limits_.find(LimitKind::kTenant, plan.tenant);
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
    exports_[i] = {plan.name, volume.store->bytes(), plan.read_only};
    volume.exported = &exports_[i];
  }
  return {};
}

void BlockServer::make_connections() noexcept {
  connection_stride_bytes_ = connection_stride(options_);
  for (uint32_t i = options_.max_connections; i-- > 0;) {
    std::byte* memory = connection_memory_.data() + i * connection_stride_bytes_;
    auto* slots = reinterpret_cast<BlockRequest*>(
        memory + align_up(sizeof(nbd::Connection), kCacheLineBytes));
    for (uint32_t k = 0; k < options_.requests_per_connection; ++k) new (&slots[k]) BlockRequest;
    StreamLayer* const tls = wiring_.tls == nullptr ? nullptr : &wiring_.tls->make();
    auto* connection =
        new (memory) nbd::Connection(environment_, {slots, options_.requests_per_connection}, tls);
    free_.push(*connection);
  }
}

// The terms of a listener are its limit.
void BlockServer::make_acceptor() noexcept {
  nbd::ConnectionCounters& counters = *wiring_.connection_counters;
  acceptor_.create({.loop = wiring_.connections_loop,
                    .sockets = wiring_.sockets,
                    .counters = &counters,
                    .turned_away = &counters.connections_turned_away,
                    .layers = wiring_.tls,
                    .silence_ns_max = options_.client_timeout_ns,
                    .take =
                        [](void* self, const AcceptedClient& client) noexcept {
                          return static_cast<BlockServer*>(self)->take(client);
                        },
                    .drain = [](void* self) noexcept { static_cast<BlockServer*>(self)->drain(); },
                    .context = this});
}

Result<void> BlockServer::create(const Carve& carve, const OpenVolume& open_volume,
                                 const BlockServerOptions& options,
                                 const BlockServerWiring& wiring) {
  options_ = options;
  wiring_ = wiring;
  BP_TRY(take_memory(carve));
  BP_TRY(make_shards(carve));
  limits_.create(options_.limits, wiring_.limit_counters, *wiring_.connections_loop);
  BP_TRY(add_volumes(carve, open_volume));
  environment_.server = this;
  environment_.lingering = &lingering_;
  environment_.sockets = wiring_.sockets;
  environment_.loop = wiring_.connections_loop;
  environment_.counters = wiring_.connection_counters;
  environment_.exports = exports_;
  environment_.volumes = volumes_;
  environment_.trace = wiring_.trace;
  environment_.limits = limits_.are_on() ? &limits_ : nullptr;
  make_connections();
  make_acceptor();
  const auto overdue = [](void*, Limited& late) noexcept {
    static_cast<nbd::Connection&>(late).overdue();
  };
  EventLoop& loop = *wiring_.connections_loop;
  negotiations_.create(loop, options_.handshake_timeout_ns, overdue, nullptr);
  lingering_.create(loop, overdue, nullptr);
  return {};
}

bool BlockServer::is_valid() const noexcept {
  uint32_t marked_count = 0;
  for (const nbd::Connection* each = first_marked_; each != nullptr; each = each->next_marked) {
    if (!each->is_marked || each->is_closed()) return false;
    if (++marked_count > options_.max_connections) return false;
  }
  uint32_t open_count = 0;
  for (uint32_t i = 0; i < options_.max_connections; ++i) {
    open_count += connection(i).is_closed() ? 0 : 1;
    marked_count -= connection(i).is_marked ? 1 : 0;
  }
  return marked_count == 0 && acceptor_.is_valid() && open_count == acceptor_.open_count() &&
         free_.has_just(options_.max_connections - open_count,
                        [](const nbd::Connection& one) { return one.is_closed(); });
}

// Releases requests that are held or wait for a limit, so that they are answered, too.
void BlockServer::request_drain() noexcept {
  acceptor_.request_drain();
  for (VolumeShard& shard : shards_) wiring_.volume_loops[shard.number]->submit(shard.release_call);
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

void BlockServer::set_read_only(size_t volume, bool is_read_only) noexcept {
  BP_ASSERT(is_own_thread() && volume < volumes_.size());
  volumes_[volume].exported->read_only = is_read_only;
  for (uint32_t i = 0; i < options_.max_connections; ++i) {
    if (!connection(i).is_closed()) connection(i).set_read_only(volumes_[volume], is_read_only);
  }
}

void BlockServer::set_limit(RequestLimit& limit, const LimitRates& rates) noexcept {
  BP_ASSERT(is_own_thread() && !acceptor_.is_draining());
  limit.set(rates);
  environment_.limits = limits_.are_on() ? &limits_ : nullptr;
}

// The acceptor drains, and has stopped listening.
void BlockServer::drain() noexcept {
  BP_DCHECK_SLOW(is_valid());
  limits_.end();
  environment_.limits = nullptr;
  for (uint32_t i = 0; i < options_.max_connections; ++i) {
    if (!connection(i).is_closed()) connection(i).finish();
  }
}

AcceptOutcome BlockServer::take(const AcceptedClient& client) noexcept {
  // A volume may have grown; connected clients keep the old size.
  for (Volume& volume : volumes_) volume.exported->bytes = volume.store->bytes();
  nbd::Connection* const connection = free_.first();
  if (connection == nullptr) return AcceptOutcome::kNoPlace;
  auto* const limit = static_cast<BlockLimit*>(client.terms);
  if (connection->open(client.fd, client.layer_use, limit) != 0) return AcceptOutcome::kTurnedAway;
  BP_DCHECK(!connection->is_closed());
  free_.pop();
  acceptor_.opened();
  negotiations_.begin(*connection);
  return AcceptOutcome::kTaken;
}

void BlockServer::handshake_done(nbd::Connection& connection) noexcept {
  BP_DCHECK(is_own_thread());
  negotiations_.end(connection);
}

void BlockServer::submit(BlockRequest& request) noexcept {
  BP_DCHECK(is_own_thread() && request.connection != nullptr);
  request.volume->requests->push(request);
}

void BlockServer::mark(nbd::Connection& connection) noexcept {
  BP_DCHECK(is_own_thread() && !connection.is_closed());
  if (connection.is_marked) return;
  connection.is_marked = true;
  connection.next_marked = first_marked_;
  first_marked_ = &connection;
}

// Reads the clock once for all answers. Requests that are taken next begin at this time at the
// earliest, even if they were in the socket before.
uint32_t BlockServer::flush_marked() noexcept {
  uint32_t count = 0;
  bool has_looked = false;
  while (first_marked_ != nullptr) {
    nbd::Connection& connection = *first_marked_;
    first_marked_ = connection.next_marked;
    connection.is_marked = false;
    if (!has_looked && connection.has_answers()) {
      wiring_.connections_loop->look_at_clock();
      has_looked = true;
    }
    BP_DCHECK(!connection.is_closed());
    connection.flush();
    ++count;
    if (!connection.is_closed()) continue;
    free_.push(connection);
    acceptor_.closed();
  }
  return count;
}

// Each shard has its share of the budget, so no shard waits for another shard's answers.
uint32_t BlockServer::take_replies(uint32_t budget) noexcept {
  const auto shard_count = static_cast<uint32_t>(shards_.size());
  const uint32_t part = std::max(std::min(budget, kReplyBudget) / shard_count, 1U);
  size_t total = 0;
  for (VolumeShard& shard : shards_) {
    BlockRequest* batch[kReplyBudget];
    const size_t count = shard.replies->pop_batch({batch, part});
    for (size_t i = 0; i < count; ++i) batch[i]->connection->request_returned(*batch[i]);
    total += count;
  }
  return static_cast<uint32_t>(total);
}

uint32_t BlockServer::poll(uint32_t budget) noexcept {
  BP_DCHECK(is_own_thread());
  BP_KEEPS_VALID(*this);
  const uint32_t count = take_replies(budget);
  const uint32_t flushed = flush_marked();
  // One ring for all requests that the sockets and this poll have submitted.
  for (VolumeShard& shard : shards_) shard.requests.ring();
  return count + flushed;
}

}  // namespace bedplate
