// StreamAcceptor: how clients come to a server of one shard. It listens, has the server take each
// client or refuses the client, counts the connections, and drains. The server has the connections:
// a StreamServer, or a server whose protocol does not fit a StreamSession.
//
//     a client comes   the service refuses it, with words (StreamRefusals::refusal), or
//                      the server takes nobody: it drains, or set_accepting(false), or
//                      another shard has a place for it (client_moves.h), or
//                      take() opens a connection for it, or has no place (StreamRefusals::too_many)
//     a connection     opened() ... closed()
//     request_drain()  no more listening; drain() ends connections; after the last one, and when
//                      no client is on its way to another shard, is_drained()
//
// It touches no connection, and a request costs nothing here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "platform/counter.h"
#include "transport/loop/event_loop.h"
#include "transport/sockets/client_moves.h"
#include "transport/sockets/layer_use.h"
#include "transport/sockets/refused_clients.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_server_counters.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

// Words for clients that are not served, in the service's own protocol, without a layer. Each
// function returns words, which may lie in `room` (StreamAcceptor::kWordsBytesMax); they are sent
// before the connection is closed. Empty: nothing is sent. A service with words plans
// RefusedClients::kCountMax connections more.
struct StreamRefusals {
  // Why the client of the connected socket `fd` is not served; empty: it is. The service counts
  // those that it refuses. nullptr: all are served.
  std::string_view (*refusal)(void* context, int fd, std::span<char> room) noexcept = nullptr;
  // For a client beyond the planned connections, none of which is idle. nullptr: empty.
  std::string_view (*too_many)(void* context, std::span<char> room) noexcept = nullptr;
  void* context = nullptr;  // outlives the server

  bool are_any() const noexcept { return refusal != nullptr || too_many != nullptr; }
};

// kTaken: the descriptor is the server's. kNoPlace: all planned connections are open. kTurnedAway:
// the client is not served for another reason.
enum class AcceptOutcome : uint8_t { kTaken, kNoPlace, kTurnedAway };

struct StreamAcceptorOptions {
  EventLoop* loop = nullptr;
  StreamSockets* sockets = nullptr;  // the loop's
  AcceptorCounters* counters = nullptr;
  Counter* turned_away = nullptr;        // of kTurnedAway; nullptr: connections_refused
  const StreamLayers* layers = nullptr;  // tell the use of each listener; nullptr: none
  uint64_t silence_ns_max = 0;           // StreamListener
  StreamRefusals refusals = {};
  ClientMoves* moves = nullptr;  // to other shards; nullptr: the server is on this one alone
  // The server. take(): not called while the acceptor takes nobody. drain(): the server ends each
  // connection in its own way.
  AcceptOutcome (*take)(void* context, const AcceptedClient& client) noexcept = nullptr;
  void (*drain)(void* context) noexcept = nullptr;
  void* context = nullptr;
};

// Threads: before start(), the one that sets it up; then the shard's, but for request_drain() and
// is_drained(). Nothing is allocated after create(). Lifetime: as long as the loop runs.
class StreamAcceptor {
 public:
  static constexpr uint32_t kListenersMax = 8;
  static constexpr size_t kWordsBytesMax = 1024;  // StreamRefusals

  StreamAcceptor() noexcept = default;
  StreamAcceptor(const StreamAcceptor&) = delete;
  StreamAcceptor& operator=(const StreamAcceptor&) = delete;

  // Before the seal, once: words take a timer's slot. All that `options` names outlives this.
  void create(const StreamAcceptorOptions& options) noexcept;
  // Adds a listening socket. `fd` stays the caller's, and open as long as the loop runs. `terms`:
  // for take(). Requires: create() was called, start() was not; at most kListenersMax.
  void add(int fd, void* terms = nullptr) noexcept;
  // Begins to listen.
  void start() noexcept;

  // Whether it takes clients, unless it drains. If not, it closes their connections at once.
  bool is_accepting() const noexcept { return is_accepting_ && !is_draining_; }
  void set_accepting(bool is_accepting) noexcept { is_accepting_ = is_accepting; }

  // A connection has begun, or has ended.
  void opened() noexcept;
  void closed() noexcept;
  uint32_t open_count() const noexcept { return open_count_; }
  // Refuses a client that the server took, but cannot serve. Requires: `outcome` is not kTaken.
  void refuse(int fd, AcceptOutcome outcome) noexcept;

  // Drains on the shard, soon. Requires: create() was called. Threads: any.
  void request_drain() noexcept { options_.loop->submit(drain_call_); }
  // Drains now, unless it does already.
  void drain() noexcept;
  bool is_draining() const noexcept { return is_draining_; }
  // Whether it drains, no connection is open, and no client is on its way. Threads: any.
  bool is_drained() const noexcept { return is_drained_.load(std::memory_order_acquire); }
  // Closes the connections of refused clients at once. After the loop's run.
  void end() noexcept { refused_.end(); }

  // Invariants, looked at before and after each change: 1. It is drained only when it drains, no
  // connection is open, and no client is on its way to another shard. 2. The refused clients are
  // valid.
  bool is_valid() const noexcept;

 private:
  struct Listener {
    StreamListener socket;
    StreamAcceptor* acceptor = nullptr;
    LayerUse layer_use = LayerUse::kNone;
    void* terms = nullptr;
    bool is_only = false;  // no other shard listens at its socket
  };

  bool is_own_thread() const noexcept { return options_.loop->is_own_thread(); }
  bool is_settled() const noexcept {
    return options_.moves == nullptr || options_.moves->is_settled();
  }
  void accept(const AcceptedClient& client, bool is_only) noexcept;
  void take(const AcceptedClient& client) noexcept;
  void look_drained() noexcept;

  StreamAcceptorOptions options_;
  uint32_t open_count_ = 0;
  Listener listeners_[kListenersMax];
  uint32_t listener_count_ = 0;
  RefusedClients refused_;
  LoopCall drain_call_ = {
      .function = [](void* self) noexcept { static_cast<StreamAcceptor*>(self)->drain(); },
      .context = this};
  bool is_accepting_ = true;
  bool is_draining_ = false;
  std::atomic<bool> is_drained_{false};
};

}  // namespace bedplate
