// StreamServer: the connections of a service on one shard, each with its session.
//
// The service plans its needs as below, and derives its protocol from StreamSession. This class
// does the rest: it accepts connections, up to the planned number, receives and sends as their
// sessions say, closes them, and drains. It closes connections beyond that number at once, with
// words of the protocol if the service has some (stream_acceptor.h), or lets them replace idle ones
// (`replaces_idle`). On several shards they go to another one first (stream_servers.h). With limits
// (PatienceLimits) it closes connections that are idle or too slow.
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
// A session may end, or be drained, while its peer is still sending. The connection then lingers
// (stream_linger.h), so that the peer gets its last replies; in a drain only if the peer has not
// acknowledged all of them.
//
// With `layers` (StreamServerOptions) connections go through a layer, such as TLS, where its use on
// the listener says so; the sessions do not notice. With `has_layer_on_request` they begin in clear
// instead, and their sessions start the layer (StreamSession::start_layer). A connection with a
// layer always lingers: its layer tells the peer the end first, and is then removed. So does one
// whose layer has failed by the peer's doing, so that the peer hears why.
//
// A connection that is replaced closes as soon as its operations have ended, in the next polls.
// Meanwhile its successor's descriptor waits in it:
//
//     a client comes, all are taken -> the longest idle one is broken off -> closed -> the
//     successor is accepted in its place
//
// If its session still waits for something else than its peer, the successor is refused instead.
#pragma once

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
#include "transport/sockets/answer_watch.h"
#include "transport/sockets/client_moves.h"
#include "transport/sockets/layered_socket_datapath.h"
#include "transport/sockets/session_patience.h"
#include "transport/sockets/stream_acceptor.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_linger.h"
#include "transport/sockets/stream_server_counters.h"
#include "transport/sockets/stream_session_datapath.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

struct StreamServerOptions {
  const char* name = "a service";  // in the log; static
  EventLoop* loop = nullptr;
  StreamSockets* sockets = nullptr;  // the loop's
  StreamServerCounters* counters = nullptr;
  uint64_t silence_ns_max = 0;  // StreamListener
  // Clients that have waited for so long for an answer are counted, and raise an alert; 0: none.
  uint64_t answer_ns_max = 10 * kNsPerSecond;
  TraceWriter trace = {};          // of the loop's shard: StreamSession::Owner
  StreamLayers* layers = nullptr;  // the loop's (ServiceContext::tls); nullptr: none
  // The layer begins when the session starts it (STARTTLS), not with the first byte.
  bool has_layer_on_request = false;
  StreamRefusals refusals = {};
  PatienceLimits patience = {};
  // When all connections are taken, a new one replaces the one that has been idle for the longest
  // time. The service plans StreamServer::kSuccessorsMax descriptors more.
  bool replaces_idle = false;
  // With servers of other shards: clients that find no place here go to one of them, before any is
  // replaced. nullptr: the server is alone (StreamServers makes those of several shards).
  ClientMoves* moves = nullptr;
};

// Threads: before start(), the one that sets it up; then the shard's, but for request_drain() and
// is_drained(). Nothing is allocated after create(). Lifetime: as long as the loop runs.
class StreamServer {
 public:
  static constexpr uint32_t kListenersMax = StreamAcceptor::kListenersMax;
  // The most clients that wait for the end of a connection that they replace; one more takes the
  // place of the one that has waited longest.
  static constexpr uint32_t kSuccessorsMax = 8;
  // The most sockets of a server with words and `replaces_idle`, beside those of its connections:
  // of clients that are refused, that replace an idle one, and of one that was just accepted.
  static constexpr uint32_t kOtherSocketsMax = RefusedClients::kCountMax + kSuccessorsMax + 1;
  // The longest time between two looks at connections (StreamServerOptions::patience).
  static constexpr uint64_t kLookNsMax = 500 * kNsPerMs;

  StreamServer() noexcept = default;
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  // The memory that `count` connections take.
  template <typename Session>
  static constexpr uint64_t bytes_for(uint64_t count) noexcept {
    return count * sizeof(SessionConnection<Session>);
  }

  // Makes as many connections as `memory` holds, each with a Session(arguments...). Before the
  // seal: it allocates the timers' slots. Requires: `memory` is aligned to a cache line. Ownership:
  // `memory`, everything `options` names and the arguments outlive the server.
  template <typename Session, typename... Arguments>
  void create(const StreamServerOptions& options, std::span<std::byte> memory,
              Arguments&... arguments) noexcept {
    BP_REQUIRE(options_.loop == nullptr && options.loop != nullptr && options.sockets != nullptr &&
                   options.counters != nullptr,
               "a server is created twice, or without loop, sockets or counters: "
               "StreamServer::create");
    options_ = options;
    make_parts();
    add<Session>(memory, arguments...);
  }
  // Makes further connections, in memory of its own: for memory that is not in one piece. Between
  // create() and start(), and as create() otherwise.
  template <typename Session, typename... Arguments>
  void add(std::span<std::byte> memory, Arguments&... arguments) noexcept {
    BP_REQUIRE(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0,
               "the memory of a server is not aligned to a cache line: StreamServer::create");
    constexpr size_t kStrideBytes = sizeof(SessionConnection<Session>);
    for (uint64_t i = memory.size() / kStrideBytes; i-- > 0;) {
      auto* made =
          new (memory.data() + i * kStrideBytes) SessionConnection<Session>(*this, arguments...);
      made->session = &made->own_session;
      made->session->set_owner({.changed =
                                    [](void* context) noexcept {
                                      auto& its = *static_cast<Connection*>(context);
                                      its.server.advance(its);
                                    },
                                .context = static_cast<Connection*>(made),
                                .watch = &watch_,
                                .peer = &made->socket,
                                .trace = options_.trace});
      made->next = all_;
      all_ = made;
      ++connection_count_;
      free_.push(*made);
    }
    if (options_.moves != nullptr) options_.moves->set_place_count(connection_count_);
  }

  // Adds a listening socket; the layers say how its clients use them. `fd` stays the caller's, and
  // open as long as the loop runs. `of_service`: for the sessions of its clients
  // (StreamPeer::listener). Requires: create() was called, start() was not; at most kListenersMax.
  void add_listener(int fd, void* of_service = nullptr) noexcept;
  // Begins to listen. Threads: the shard's.
  void start() noexcept;

  // Stops listening, answers requests that were received whole, then closes each connection, at the
  // end of its linger if it lingers. It does not wait for the rest of a partial request,
  // but it does wait for answers that come later, and for a peer that does not read its replies.
  // Requires: create() was called. Threads: any.
  void request_drain() noexcept { acceptor_.request_drain(); }
  // Invariants, looked at before and after each change, on the shard: 1. A connection is free, with
  // no descriptor and nothing in flight, or open, with one. 2. The free ones are in a list; the
  // acceptor counts the others. 3. The acceptor is valid. 4. A connection that lingers is open, and
  // their limit is valid (time_limit.h). 5. Successors wait in connections that are broken off;
  // there are successor_count_ of them.
  bool is_valid() const noexcept;
  // Whether no connection is left after request_drain(). Threads: any.
  bool is_drained() const noexcept { return acceptor_.is_drained(); }
  // Closes all connections at once. A session that waits is left as it is: nothing wakes it any
  // more. The last call: after the loop has run, on the thread that made the sockets. Does nothing
  // if create() was not called.
  void end() noexcept;

 private:
  // A client that replaces an idle one.
  struct Successor : AcceptedClient {
    uint64_t since_ns = 0;
  };
  struct Connection : MayLinger {
    explicit Connection(StreamServer& its_server) noexcept;
    bool is_lingering() const noexcept { return is_limited(); }

    StreamServer& server;
    StreamSession* session = nullptr;
    LayeredSocket socket;
    bool may_begin_layer = false;   // nothing has come yet, and the first byte decides
    uint64_t early_bytes = 0;       // have come while the session wanted its layer
    bool is_ending = false;         // receives nothing any more
    bool is_broken = false;         // sends nothing any more, either
    bool has_failed_layer = false;  // is_broken by its layer alone: the peer hears why
    bool has_peer_ended = false;    // the peer sends nothing any more
    bool is_dropping = false;       // receives what is dropped, no longer for its session
    Connection* next_free = nullptr;
    Connection* next = nullptr;  // of all
    SessionPatience patience;
    Successor successor;

    SessionPatience::Connection state() const noexcept {
      return {socket.is_sending(), socket.is_in_handshake(), socket.taken_ns()};
    }
  };
  template <typename Session>
  struct alignas(kCacheLineBytes) SessionConnection : Connection {
    template <typename... Arguments>
    explicit SessionConnection(StreamServer& its_server, Arguments&... arguments) noexcept
        : Connection(its_server), own_session(arguments...) {}
    Session own_session;
  };

  bool is_own_thread() const noexcept { return options_.loop->is_own_thread(); }
  void make_parts() noexcept;
  AcceptOutcome take(const AcceptedClient& client) noexcept;
  void begin(Connection& connection, LayerUse layer_use) noexcept;
  Connection* find_replaceable() const noexcept;
  bool try_replace(const AcceptedClient& client) noexcept;
  void refuse_successor(Connection& connection) noexcept;
  void break_off(Connection& connection) noexcept;
  void look() noexcept;
  void look_at(Connection& connection) noexcept;
  void arm_look_timer() noexcept;
  bool has_closing() const noexcept;
  bool try_start_layer(Connection& connection, uint64_t bytes) noexcept;
  bool may_start_layer(const Connection& connection) const noexcept;
  void start_layer(Connection& connection) noexcept;
  static void drop(Connection& connection, uint64_t bytes) noexcept;
  void failed(Connection& connection, int64_t result) noexcept;
  void received(Connection& connection, int64_t result) noexcept;
  void sent(Connection& connection, int64_t result) noexcept;
  void advance(Connection& connection) noexcept;
  void receive(Connection& connection) noexcept;
  void tell_foreign(const Connection& connection) noexcept;
  bool may_linger(const Connection& connection) const noexcept;
  void linger(Connection& connection) noexcept;
  void begin_lingering(Connection& connection) noexcept;
  void end_layer(Connection& connection) noexcept;
  void close(Connection& connection) noexcept;
  void drain() noexcept;

  StreamServerOptions options_;
  Connection* all_ = nullptr;  // a list
  uint64_t connection_count_ = 0;
  FreeList<&Connection::next_free> free_;
  StreamAcceptor acceptor_;
  LogLimit log_limit_{10};
  AnswerWatch watch_;
  StreamLinger lingering_;
  Timer look_timer_ = {
      .expired = [](void* self) noexcept { static_cast<StreamServer*>(self)->look(); },
      .context = this};
  uint32_t successor_count_ = 0;
};

}  // namespace bedplate
