#include "apps/blockd/block_connections.h"

#include <algorithm>
#include <memory>
#include <new>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/units.h"

namespace bedplate {

uint64_t BlockConnections::stride_bytes(uint32_t requests_per_connection) noexcept {
  return align_up(sizeof(nbd::Connection), kCacheLineBytes) +
         align_up(requests_per_connection * sizeof(BlockRequest), kCacheLineBytes);
}

void BlockConnections::make_doors() {
  BP_ASSERT(wiring_.volumes.empty() || wiring_.volumes.size() == options_.volumes.size());
  exports_.resize(options_.volumes.size());
  doors_.resize(options_.volumes.size());
  for (size_t i = 0; i < doors_.size(); ++i) {
    Volume& volume = options_.volumes[i];
    exports_[i] = {volume.plan->name, volume.store->bytes(), volume.plan->read_only};
    doors_[i] = {&volume, &options_.lanes[volume.plan->shard].requests,
                 wiring_.volumes.empty() ? &volume.counters->requests : wiring_.volumes[i],
                 &exports_[i]};
  }
}

void BlockConnections::make_environment() noexcept {
  environment_.server = this;
  environment_.number = options_.number;
  environment_.lingering = &lingering_;
  environment_.sockets = wiring_.sockets;
  environment_.loop = wiring_.loop;
  environment_.counters = wiring_.counters;
  environment_.exports = exports_;
  environment_.doors = doors_;
  environment_.discard_memory = options_.discard_memory;
  environment_.trace = wiring_.trace;
}

void BlockConnections::make_connections() noexcept {
  const uint32_t request_count = options_.requests_per_connection;
  stride_bytes_ = stride_bytes(request_count);
  BP_ASSERT(options_.memory.size() == options_.connection_count * stride_bytes_);
  for (uint32_t i = options_.connection_count; i-- > 0;) {
    std::byte* memory = options_.memory.data() + i * stride_bytes_;
    auto* slots = reinterpret_cast<BlockRequest*>(
        memory + align_up(sizeof(nbd::Connection), kCacheLineBytes));
    for (uint32_t k = 0; k < request_count; ++k) new (&slots[k]) BlockRequest;
    StreamLayer* const tls = wiring_.tls == nullptr ? nullptr : &wiring_.tls->make();
    auto* connection = new (memory) nbd::Connection(environment_, {slots, request_count}, tls);
    free_.push(*connection);
  }
}

// The terms of a listener are its limit.
void BlockConnections::make_acceptor() {
  if (wiring_.moves != nullptr) {
    moves_ = std::make_unique<ClientMoves>();
    moves_->create(*wiring_.loop, *wiring_.moves);
    moves_->set_place_count(options_.connection_count);
  }
  acceptor_.create(
      {.loop = wiring_.loop,
       .sockets = wiring_.sockets,
       .counters = wiring_.counters,
       .turned_away = &wiring_.counters->connections_turned_away,
       .layers = wiring_.tls,
       .silence_ns_max = options_.client_timeout_ns,
       .moves = moves_.get(),
       .take =
           [](void* self, const AcceptedClient& client) noexcept {
             return static_cast<BlockConnections*>(self)->take(client);
           },
       .drain = [](void* self) noexcept { static_cast<BlockConnections*>(self)->drain(); },
       .context = this});
}

void BlockConnections::create(const ConnectionsOptions& options, const ConnectionsWiring& wiring) {
  BP_ASSERT(environment_.server == nullptr && !options.lanes.empty());
  options_ = options;
  wiring_ = wiring;
  make_doors();
  make_environment();
  if (options_.far_limits != nullptr) {
    const auto passed = [](void* self, BlockRequest& request) noexcept {
      static_cast<BlockConnections*>(self)->passed_limits(request);
    };
    options_.far_limits->serve(passed, this);
  }
  set_limits_on(options_.state->are_limits_on.load(std::memory_order_relaxed));
  make_connections();
  make_acceptor();
  const auto overdue = [](void*, Limited& late) noexcept {
    static_cast<nbd::Connection&>(late).overdue();
  };
  negotiations_.create(*wiring_.loop, options_.handshake_timeout_ns, overdue, nullptr);
  lingering_.create(*wiring_.loop, overdue, nullptr);
}

bool BlockConnections::is_valid() const noexcept {
  uint32_t marked_count = 0;
  for (const nbd::Connection* each = first_marked_; each != nullptr; each = each->next_marked) {
    if (!each->is_marked || each->is_closed()) return false;
    if (++marked_count > options_.connection_count) return false;
  }
  uint32_t open_count = 0;
  for (uint32_t i = 0; i < options_.connection_count; ++i) {
    open_count += connection(i).is_closed() ? 0 : 1;
    marked_count -= connection(i).is_marked ? 1 : 0;
  }
  return marked_count == 0 && acceptor_.is_valid() && open_count == acceptor_.open_count() &&
         free_.has_just(options_.connection_count - open_count,
                        [](const nbd::Connection& one) { return one.is_closed(); });
}

void BlockConnections::follow() noexcept {
  BP_ASSERT(is_own_thread());
  for (const VolumeDoor& door : doors_) {
    const bool is_read_only = door.volume->is_read_only.load(std::memory_order_relaxed);
    if (door.exported->read_only == is_read_only) continue;
    door.exported->read_only = is_read_only;
    for (uint32_t i = 0; i < options_.connection_count; ++i) {
      if (!connection(i).is_closed()) connection(i).set_read_only(door, is_read_only);
    }
  }
  acceptor_.set_accepting(options_.state->is_accepting.load(std::memory_order_relaxed));
  set_limits_on(!acceptor_.is_draining() &&
                options_.state->are_limits_on.load(std::memory_order_relaxed));
}

void BlockConnections::set_limits_on(bool are_on) noexcept {
  if (FarLimits* const far = options_.far_limits; far != nullptr) {
    far->set_on(are_on);
    are_on = far->is_on();
  }
  environment_.limits = are_on ? options_.limits : nullptr;
}

// The acceptor drains, and has stopped listening. The limits' own shard ends all limits.
void BlockConnections::drain() noexcept {
  BP_DCHECK_SLOW(is_valid());
  if (options_.far_limits == nullptr) options_.limits->end();
  set_limits_on(false);
  for (uint32_t i = 0; i < options_.connection_count; ++i) {
    if (!connection(i).is_closed()) connection(i).finish();
  }
}

AcceptOutcome BlockConnections::take(const AcceptedClient& client) noexcept {
  // A volume may have grown; connected clients keep the old size.
  for (VolumeDoor& door : doors_) door.exported->bytes = door.volume->store->bytes();
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

void BlockConnections::handshake_done(nbd::Connection& connection) noexcept {
  BP_DCHECK(is_own_thread());
  negotiations_.end(connection);
}

void BlockConnections::admit(BlockRequest& request) noexcept {
  BP_DCHECK(is_own_thread() && request.connection != nullptr);
  if (options_.far_limits != nullptr) return options_.far_limits->admit(request);
  BlockLimit::admit(request, request.connection->listener_limit);
}

void BlockConnections::drop_waiting(nbd::Connection& connection) noexcept {
  BP_DCHECK(is_own_thread());
  if (options_.far_limits == nullptr) return options_.limits->drop_requests_of(connection);
  connection.has_left.store(true, std::memory_order_relaxed);
  options_.far_limits->drop_left();
}

// A request comes back from limits on another shard.
void BlockConnections::passed_limits(BlockRequest& request) noexcept {
  nbd::Connection& connection = *request.connection;
  if (connection.has_left.load(std::memory_order_relaxed)) {
    connection.request_dropped(request);
    return mark(connection);
  }
  options_.lanes[request.volume->plan->shard].requests.push(request);
}

void BlockConnections::mark(nbd::Connection& connection) noexcept {
  BP_DCHECK(is_own_thread() && !connection.is_closed());
  if (connection.is_marked) return;
  connection.is_marked = true;
  connection.next_marked = first_marked_;
  first_marked_ = &connection;
}

// Reads the clock once for all answers. Requests that are taken next begin at this time at the
// earliest, even if they were in the socket before.
uint32_t BlockConnections::flush_marked() noexcept {
  uint32_t count = 0;
  bool has_looked = false;
  while (first_marked_ != nullptr) {
    nbd::Connection& connection = *first_marked_;
    first_marked_ = connection.next_marked;
    connection.is_marked = false;
    if (!has_looked && connection.has_answers()) {
      wiring_.loop->look_at_clock();
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
uint32_t BlockConnections::take_replies(uint32_t budget) noexcept {
  const auto shard_count = static_cast<uint32_t>(options_.lanes.size());
  const uint32_t part = std::max(std::min(budget, kReplyBudget) / shard_count, 1U);
  size_t total = 0;
  size_t crossed = 0;
  for (ConnectionLanes& each : options_.lanes) {
    BlockRequest* batch[kReplyBudget];
    const size_t count = each.replies->pop_batch({batch, part});
    for (size_t i = 0; i < count; ++i) batch[i]->connection->request_returned(*batch[i]);
    total += count;
    if (each.requests.doorbell != nullptr) crossed += count;
  }
  if (wiring_.lanes != nullptr) wiring_.lanes->crossings.add(crossed);
  return static_cast<uint32_t>(total);
}

uint32_t BlockConnections::poll(uint32_t budget) noexcept {
  BP_DCHECK(is_own_thread());
  BP_KEEPS_VALID(*this);
  uint32_t count = take_replies(budget);
  if (FarLimits* const far = options_.far_limits; far != nullptr) {
    count += far->poll_back(budget);
    if (!far->is_on()) environment_.limits = nullptr;
  }
  count += flush_marked();
  // One ring for all requests that the sockets and this poll have submitted.
  for (ConnectionLanes& each : options_.lanes) each.requests.ring();
  if (options_.far_limits != nullptr) options_.far_limits->ring();
  return count;
}

}  // namespace bedplate
