// StreamServer: the connections of a service on one shard, each with its session.
//
// The service plans its needs as below, and derives its protocol from StreamSession. This class
// does the rest: connections are accepted, up to the number planned, received from and sent to as
// their sessions say, closed, and drained. Connections too many are closed at once.
//
//     plan.segment("echo", {{"connections:echo", StreamServer::bytes_for<Echo>(count)}}, ...);
//     plan.connections(shard, count, "max_connections");
//     plan.listen("listen", addresses);
//     ...
//     server.create<Echo>({.name = ..., .loop = ..., .sockets = ..., .counters = ...}, memory,
//                         arguments...);
//     server.add_listener(fd);                   // in create(), each of ServiceContext::listeners
//     server.start();                            // in start(), on the shard
//     server.request_drain(), server.is_drained()
//
// A session may end while its peer is still sending, and a socket that is closed with bytes unread
// takes back what was sent. So the connection lingers, and its last replies reach the peer:
//
//     all replies sent -> no more is sent (SHUT_WR) -> what comes is dropped, until the peer
//     closes, or for a second, or so many bytes -> closed
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/free_list.h"
#include "platform/log_limit.h"
#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/sockets/stream_session_datapath.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

class CounterTable;

// Written by the shard; the service plans them.
struct StreamServerCounters {
  Counter connections_open;
  Counter connections_peak;  // the most that were open at once
  Counter connections_total;
  Counter connections_refused;  // closed at once: there were as many as planned, or it drains
  Counter connections_foreign;  // closed: what came is another protocol
  Counter received_bytes;
  Counter sent_bytes;  // of replies that went out whole
};
// For the describe() of the struct that they are in. `key`: the key of the service's table that its
// connections are planned by (`bedplate plan --explain`); nullptr: none.
void describe(CounterTable& table, const StreamServerCounters& counters, const char* key = nullptr);

struct StreamServerOptions {
  const char* name = "a service";  // in the log; static
  EventLoop* loop = nullptr;
  StreamSockets* sockets = nullptr;  // the loop's
  StreamServerCounters* counters = nullptr;
  uint64_t silence_ns_max = 0;  // StreamListener
  TraceWriter trace = {};       // of the loop's shard: StreamSession::trace_to
};

// Threads: one that sets it up before the loop runs; from start() on the shard's, but for
// request_drain() and is_drained(). Nothing is allocated. Lifetime: as long as the loop runs.
class StreamServer {
 public:
  static constexpr uint32_t kListenersMax = 8;
  // How long a connection lingers, and how much of it is dropped meanwhile.
  static constexpr uint64_t kLingerNs = kNsPerSecond;
  static constexpr uint64_t kLingerBytes = 4 * kMiB;

  StreamServer() noexcept = default;
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  // The memory that so many connections take, in bytes.
  template <typename Session>
  static constexpr uint64_t bytes_for(uint64_t count) noexcept {
    return count * sizeof(Place<Session>);
  }

  // Makes as many connections as `memory` holds, each with a Session(arguments...).
  // Before the seal: the timer's room is allocated. Requires: `memory` is aligned to a cache line.
  // Ownership: it, what `options` names and the arguments outlive this.
  template <typename Session, typename... Arguments>
  void create(const StreamServerOptions& options, std::span<std::byte> memory,
              Arguments&... arguments) noexcept {
    BP_ASSERT(stride_bytes_ == 0 && options.loop != nullptr && options.counters != nullptr);
    BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0);
    options_ = options;
    memory_ = memory;
    stride_bytes_ = sizeof(Place<Session>);
    options.loop->timers().reserve_more(1);
    for (uint64_t i = connection_count(); i-- > 0;) {
      auto* place = new (memory.data() + i * stride_bytes_) Place<Session>(arguments...);
      place->server = this;
      place->session = &place->own_session;
      place->session->trace_to(options.trace);
      free_.push(*place);
    }
  }

  // Accepts connections on `fd`, which stays the caller's, and open as long as the loop runs.
  // Requires: create() was called, start() was not; at most kListenersMax of them.
  void add_listener(int fd) noexcept;
  // Begins to listen.
  void start() noexcept;

  // Stops listening. Requests that were received whole are answered, then each connection is
  // closed (one that lingers, once it is done); half a request is not waited for. A peer that does
  // not read its replies is waited for. Requires: create() was called. Threads: any.
  void request_drain() noexcept { options_.loop->submit(drain_call_); }
  // Invariants, looked at before and after each change, on the shard: 1. A connection is free, with
  // no descriptor and nothing in flight, or open, with one. 2. The free ones are in a list, and the
  // others are open_count_. 3. It is drained only when it drains and none is open. 4. Those that
  // linger are in another list, the first to end first; while there are any, the timer is armed.
  bool is_valid() const noexcept;
  // Whether no connection is left after request_drain(). Threads: any.
  bool is_drained() const noexcept { return is_drained_.load(std::memory_order_acquire); }

 private:
  struct Connection {
    StreamServer* server = nullptr;
    StreamSession* session = nullptr;
    StreamSocket socket;
    bool is_ending = false;       // nothing is received any more
    bool is_broken = false;       // nothing is sent any more, either
    bool has_peer_ended = false;  // it sends no more
    bool is_lingering = false;
    uint64_t linger_end_ns = 0;
    uint64_t linger_bytes_left = 0;
    iovec dropped = {};
    Connection* next_lingering = nullptr;
    Connection* previous_lingering = nullptr;
    Connection* next_free = nullptr;
  };
  template <typename Session>
  struct alignas(kCacheLineBytes) Place : Connection {
    template <typename... Arguments>
    explicit Place(Arguments&... arguments) noexcept : own_session(arguments...) {}
    Session own_session;
  };

  uint64_t connection_count() const noexcept { return memory_.size() / stride_bytes_; }
  // Each Place begins with its Connection.
  Connection& connection(uint64_t index) const noexcept {
    BP_DCHECK(index < connection_count());
    return *reinterpret_cast<Connection*>(memory_.data() + index * stride_bytes_);
  }
  bool is_own_thread() const noexcept { return options_.loop->is_own_thread(); }
  void accept(int fd) noexcept;
  void received(Connection& connection, int64_t result) noexcept;
  void sent(Connection& connection, int64_t result) noexcept;
  void advance(Connection& connection) noexcept;
  void tell_foreign(const Connection& connection) noexcept;
  bool may_linger(const Connection& connection) const noexcept;
  void linger(Connection& connection) noexcept;
  void end_lingering(Connection& connection) noexcept;
  void arm_linger_timer() noexcept;
  void end_late() noexcept;
  void close(Connection& connection) noexcept;
  void drain() noexcept;

  StreamServerOptions options_;
  std::span<std::byte> memory_;
  uint64_t stride_bytes_ = 0;
  FreeList<&Connection::next_free> free_;
  uint32_t open_count_ = 0;
  StreamListener listeners_[kListenersMax];
  uint32_t listener_count_ = 0;
  LoopCall drain_call_ = {
      .function = [](void* self) noexcept { static_cast<StreamServer*>(self)->drain(); },
      .context = this};
  LogLimit log_limit_{10};
  Connection* first_lingering_ = nullptr;
  Connection* last_lingering_ = nullptr;
  Timer linger_timer_ = {
      .expired = [](void* self) noexcept { static_cast<StreamServer*>(self)->end_late(); },
      .context = this};
  char dropped_[16 * kKiB];  // of all connections that linger; nobody reads it
  bool is_draining_ = false;
  std::atomic<bool> is_drained_{false};
};

}  // namespace bedplate
