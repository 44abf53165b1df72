// ClientMoves: how a server on several shards gives clients to the shard that has room for them.
//
// Each of its acceptors (stream_acceptor.h) has one; those of a server form a ring.
//
//     a client comes            all places of the shard are taken, or its socket exists there alone
//       try_move()              the emptiest shard with room gets it, through a free slot
//     on that shard, soon       its acceptor takes the client, or refuses it
//     on the first shard again  the slot is free
//
// A slot belongs to its shard while it is free, then to the other shard until it is on its way
// back, so nothing is locked. A shard that stands still holds clients only in slots on their way to
// it: kSlotCount for each shard that gives. Shards count them as its connections, so they look for
// another one. While all its slots are on their way, a shard keeps its clients, or refuses them.
//
// A client is given once. If the other shard has no room any more when it arrives, because others
// were faster, it is refused there. A connection is not moved later, and a request costs nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/free_list.h"
#include "transport/loop/event_loop.h"
#include "transport/sockets/layer_use.h"

namespace bedplate {

class CounterTable;

// The client of a connected socket. `layer_use`, `terms`: of its listener.
struct AcceptedClient {
  int fd = -1;
  LayerUse layer_use = LayerUse::kNone;
  void* terms = nullptr;
};

// The shard that gives clients counts them. The loop writes them; the service plans them.
struct MoveCounters {
  Counter connections_moved;
  Counter connections_moving;  // on their way: at most ClientMoves::kSlotCount
};
void describe(CounterTable& table, const MoveCounters& counters);

// Threads: before the loops run, the one that sets it up; then the shard's own. Nothing is
// allocated. Lifetime: as long as the loops of all shards run.
class ClientMoves {
 public:
  static constexpr uint32_t kSlotCount = 16;

  // The acceptor of the shard. arrived(): takes `client`, whose descriptor is the callee's.
  // settled(): the last slot has come back.
  struct Acceptor {
    void (*arrived)(void* context, const AcceptedClient& client) noexcept = nullptr;
    void (*settled)(void* context) noexcept = nullptr;
    void* context = nullptr;
    const Counter* open = nullptr;  // how many connections the shard has; any shard reads it
  };

  ClientMoves() noexcept = default;
  ClientMoves(const ClientMoves&) = delete;
  ClientMoves& operator=(const ClientMoves&) = delete;

  // Requires: called once, before all else. Both outlive this.
  void create(EventLoop& loop, MoveCounters& counters) noexcept;
  // Joins two rings into one. Requires: they are two.
  void join(ClientMoves& other) noexcept;
  // Requires: called once, with all functions.
  void serve(const Acceptor& acceptor) noexcept;
  // How many connections the shard may have.
  void set_place_count(uint64_t place_count) noexcept { place_count_ = place_count; }

  // Gives `client` to another shard, if this one has no place for it; or, with `is_only`, if
  // another one has fewer connections: no other shard listens at its socket. Returns false if no
  // shard has room, or no slot is free; the descriptor is then still the caller's. Cost: a look at
  // two counters of each shard; for a client that moves, two calls between loops.
  bool try_move(const AcceptedClient& client, bool is_only) noexcept;
  // Whether no slot is on its way.
  bool is_settled() const noexcept { return moving_count_ == 0; }

  // Closes the clients that are on their way. The last call: after all loops have run, on any
  // thread.
  void end() noexcept;

  // Invariants, looked at before and after each change: 1. A slot is free, and in the list, or it
  // has a shard that it is on its way to or from. 2. The counter connections_moving is right.
  bool is_valid() const noexcept;

 private:
  struct Slot {
    LoopCall call;
    ClientMoves* from = nullptr;
    ClientMoves* to = nullptr;  // nullptr: it is free
    AcceptedClient client;      // without a descriptor: the other shard has it
    Slot* next_free = nullptr;
  };

  uint64_t load() const noexcept;
  ClientMoves* find_emptiest() const noexcept;
  void submit(Slot& slot, ClientMoves& to, void (*function)(void* slot) noexcept) noexcept;
  static void arrive(Slot& slot) noexcept;
  void come_back(Slot& slot) noexcept;

  EventLoop* loop_ = nullptr;
  MoveCounters* counters_ = nullptr;
  Acceptor acceptor_;
  uint64_t place_count_ = 0;
  ClientMoves* next_ = this;  // of the ring
  std::array<Slot, kSlotCount> slots_;
  FreeList<&Slot::next_free> free_;
  uint32_t moving_count_ = 0;
  // Clients on their way to this shard. Other shards add, so it has a cache line of its own.
  alignas(kCacheLineBytes) std::atomic<uint32_t> coming_count_{0};
};

}  // namespace bedplate
