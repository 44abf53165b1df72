#include "transport/sockets/client_moves.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "platform/assert.h"
#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, const MoveCounters& counters) {
  table.counter("connections_moved", counters.connections_moved, "connections",
                "Clients given to another shard: all places of this one were taken, or its socket "
                "serves all shards.");
  table.gauge("connections_moving", counters.connections_moving, "connections",
              "Of these, those that wait until the other shard takes them.");
}

bool ClientMoves::is_valid() const noexcept {
  const auto moving = std::count_if(slots_.begin(), slots_.end(),
                                    [](const Slot& slot) { return slot.to != nullptr; });
  return moving_count_ == static_cast<uint32_t>(moving) &&
         (counters_ == nullptr || counters_->connections_moving.read() == moving_count_) &&
         free_.has_just(
             counters_ == nullptr ? 0 : kSlotCount - moving_count_,
             [this](const Slot& slot) { return slot.to == nullptr && slot.from == this; });
}

void ClientMoves::create(EventLoop& loop, MoveCounters& counters) noexcept {
  BP_ASSERT(loop_ == nullptr);
  loop_ = &loop;
  counters_ = &counters;
  for (Slot& slot : slots_) {
    slot.from = this;
    slot.call.context = &slot;
    free_.push(slot);
  }
  BP_DCHECK(is_valid());
}

void ClientMoves::join(ClientMoves& other) noexcept {
  BP_ASSERT(loop_ != nullptr && other.loop_ != nullptr && &other != this);
  std::swap(next_, other.next_);  // of two rings it makes one
}

void ClientMoves::serve(const Acceptor& acceptor) noexcept {
  BP_ASSERT(loop_ != nullptr && acceptor_.arrived == nullptr);
  BP_ASSERT(acceptor.arrived != nullptr && acceptor.settled != nullptr && acceptor.open != nullptr);
  acceptor_ = acceptor;
}

// Clients that are on their way count like those that are there. Any thread may ask; a value that
// is a moment old does no harm.
uint64_t ClientMoves::load() const noexcept {
  return acceptor_.open->read() + coming_count_.load(std::memory_order_relaxed);
}

// The other shard with the fewest clients that has room for one more; nullptr: none has.
ClientMoves* ClientMoves::find_emptiest() const noexcept {
  ClientMoves* emptiest = nullptr;
  for (ClientMoves* other = next_; other != this; other = other->next_) {
    const uint64_t its_load = other->load();
    if (its_load >= other->place_count_) continue;
    if (emptiest == nullptr || its_load < emptiest->load()) emptiest = other;
  }
  return emptiest;
}

bool ClientMoves::try_move(const AcceptedClient& client, bool is_only) noexcept {
  BP_ASSERT(loop_->is_own_thread() && client.fd >= 0);
  const bool is_full = load() >= place_count_;
  if (!is_full && !is_only) return false;
  ClientMoves* const to = find_emptiest();
  if (to == nullptr || (!is_full && to->load() >= load()) || free_.is_empty()) return false;
  BP_KEEPS_VALID(*this);
  Slot& slot = free_.pop();
  slot.to = to;
  slot.client = client;
  counters_->connections_moved.add(1);
  counters_->connections_moving.set(++moving_count_);
  to->coming_count_.fetch_add(1, std::memory_order_relaxed);
  submit(slot, *to, [](void* self) noexcept { arrive(*static_cast<Slot*>(self)); });
  return true;
}

// Makes the loop of `to` call `function` with the slot, which belongs to that loop from then on.
void ClientMoves::submit(Slot& slot, ClientMoves& to,
                         void (*function)(void* slot) noexcept) noexcept {
  slot.call.function = function;
  to.loop_->submit(slot.call);
}

// The slot has come to the other shard.
void ClientMoves::arrive(Slot& slot) noexcept {
  ClientMoves& to = *slot.to;
  BP_ASSERT(to.loop_->is_own_thread());
  // Others count it for a moment nowhere, never twice: else the last place would look taken.
  to.coming_count_.fetch_sub(1, std::memory_order_relaxed);
  to.acceptor_.arrived(to.acceptor_.context, std::exchange(slot.client, {}));
  to.submit(slot, *slot.from, [](void* self) noexcept {
    Slot& back = *static_cast<Slot*>(self);
    back.from->come_back(back);
  });
}

void ClientMoves::come_back(Slot& slot) noexcept {
  BP_ASSERT(loop_->is_own_thread() && moving_count_ > 0);
  {
    BP_KEEPS_VALID(*this);
    slot.to = nullptr;
    free_.push(slot);
    counters_->connections_moving.set(--moving_count_);
  }
  if (is_settled()) acceptor_.settled(acceptor_.context);
}

void ClientMoves::end() noexcept {
  for (Slot& slot : slots_) {
    const AcceptedClient client = std::exchange(slot.client, {});
    if (client.fd >= 0) ::close(client.fd);
  }
}

}  // namespace bedplate
