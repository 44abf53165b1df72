#include "transport/sockets/stream_server.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "transport/sockets/slow_sends.h"

namespace bedplate {

static constexpr uint32_t kEndBudget = 256;

StreamServer::Connection::Connection(StreamServer& its_server) noexcept
    : server(its_server),
      socket(*its_server.options_.sockets,
             its_server.options_.layers == nullptr ? nullptr : &its_server.options_.layers->make(),
             {.received =
                  [](void* context, int64_t result) noexcept {
                    auto& its = *static_cast<Connection*>(context);
                    its.server.received(its, result);
                  },
              .sent =
                  [](void* context, int64_t result) noexcept {
                    auto& its = *static_cast<Connection*>(context);
                    its.server.sent(its, result);
                  },
              .said_end =
                  [](void* context) noexcept {
                    auto& its = *static_cast<Connection*>(context);
                    its.server.advance(its);
                  },
              .context = this}) {}

bool StreamServer::is_valid() const noexcept {
  uint64_t open = 0, successors = 0;
  for (const Connection* each = all_; each != nullptr; each = each->next) {
    const LayeredSocket& socket = each->socket;
    if (!socket.is_open() && (socket.is_sending() || socket.is_receiving())) return false;
    open += socket.is_open() ? 1 : 0;
    if (each->is_lingering() && !socket.is_open()) return false;
    if (each->successor.fd < 0) continue;
    if (!socket.is_open() || !each->is_broken) return false;
    ++successors;
  }
  if (successors != successor_count_ || !lingering_.is_valid()) return false;
  if (!acceptor_.is_valid()) return false;
  return open == acceptor_.open_count() &&
         free_.has_just(connection_count_ - open, [&](const auto& one) {
           return !one.socket.is_open() && &one.server == this;
         });
}

void StreamServer::make_parts() noexcept {
  EventLoop& loop = *options_.loop;
  loop.own_timers().reserve_more(1);
  lingering_.create(
      loop,
      [](void* self, Limited& late) noexcept {
        static_cast<StreamServer*>(self)->break_off(static_cast<Connection&>(late));
      },
      this);
  watch_.create(loop, options_.answer_ns_max, options_.counters->answers_waiting,
                options_.counters->answers_late);
  acceptor_.create({.loop = options_.loop,
                    .sockets = options_.sockets,
                    .counters = options_.counters,
                    .layers = options_.layers,
                    .silence_ns_max = options_.silence_ns_max,
                    .refusals = options_.refusals,
                    .moves = options_.moves,
                    .take =
                        [](void* self, const AcceptedClient& client) noexcept {
                          return static_cast<StreamServer*>(self)->take(client);
                        },
                    .drain = [](void* self) noexcept { static_cast<StreamServer*>(self)->drain(); },
                    .context = this});
}

void StreamServer::add_listener(int fd, void* of_service) noexcept {
  BP_REQUIRE(options_.loop != nullptr && fd >= 0,
             "a listener is added before create(), or is closed: StreamServer::add_listener");
  acceptor_.add(fd, of_service);
}

void StreamServer::start() noexcept {
  BP_REQUIRE_THREAD(is_own_thread(), "StreamServer::start");
  acceptor_.start();
}

AcceptOutcome StreamServer::take(const AcceptedClient& client) noexcept {
  BP_KEEPS_VALID(*this);
  Connection* const connection = free_.first();
  if (connection == nullptr) {
    return try_replace(client) ? AcceptOutcome::kTaken : AcceptOutcome::kNoPlace;
  }
  if (connection->socket.open(client.fd, client.terms) != 0) return AcceptOutcome::kTurnedAway;
  free_.pop();
  begin(*connection, client.layer_use);
  return AcceptOutcome::kTaken;
}

void StreamServer::begin(Connection& connection, LayerUse layer_use) noexcept {
  acceptor_.opened();
  connection.is_ending = connection.is_broken = connection.has_failed_layer = false;
  connection.has_peer_ended = connection.is_dropping = false;
  connection.early_bytes = 0;
  connection.may_begin_layer = layer_use == LayerUse::kOffered && !options_.has_layer_on_request;
  connection.patience.begin(options_.loop->now_ns());
  arm_look_timer();
  const bool begins_layer = layer_use == LayerUse::kRequired && !options_.has_layer_on_request;
  connection.session->layer().set(layer_use, begins_layer);
  if (begins_layer) connection.socket.start_layer();
  advance(connection);
}

// ---- Connections that are replaced --------------------------------------------------------------

// Returns the connection that has been idle for the longest time, and that no successor waits for
// yet; if there is none, or enough successors wait, the one whose successor has waited longest.
// nullptr: none may be replaced.
StreamServer::Connection* StreamServer::find_replaceable() const noexcept {
  const auto is_idle = [](const Connection& each) {
    if (!each.socket.is_open() || !SessionPatience::is_idle(*each.session, each.state())) {
      return false;
    }
    return !each.is_lingering() || !each.socket.has_unacknowledged();  // its last reply
  };
  Connection* idle = nullptr;
  Connection* awaited = nullptr;
  for (Connection* one = all_; one != nullptr; one = one->next) {
    Connection& each = *one;
    if (each.successor.fd >= 0) {
      if (awaited == nullptr || each.successor.since_ns < awaited->successor.since_ns) {
        awaited = &each;
      }
    } else if (is_idle(each)) {
      const uint64_t heard_ns = each.patience.heard_ns(*each.session);
      if (idle == nullptr || heard_ns < idle->patience.heard_ns(*idle->session)) idle = &each;
    }
  }
  return idle != nullptr && successor_count_ < kSuccessorsMax ? idle : awaited;
}

// Returns false if no connection may be replaced; the descriptor is then still the caller's.
bool StreamServer::try_replace(const AcceptedClient& client) noexcept {
  Connection* const place = options_.replaces_idle ? find_replaceable() : nullptr;
  if (place == nullptr) return false;
  options_.counters->connections_replaced.add(1);
  const Successor before =
      std::exchange(place->successor, Successor{client, options_.loop->now_ns()});
  if (before.fd >= 0) {
    ::close(before.fd);  // nothing was read from it, so it is idle, too
  } else {
    ++successor_count_;
    break_off(*place);
  }
  return true;
}

// Its session waits for something else than its peer, perhaps for ever.
void StreamServer::refuse_successor(Connection& connection) noexcept {
  const Successor next = std::exchange(connection.successor, {});
  if (next.fd < 0) return;
  --successor_count_;
  acceptor_.refuse(next.fd, AcceptOutcome::kNoPlace);
}

void StreamServer::break_off(Connection& connection) noexcept {
  connection.is_broken = true;
  connection.has_failed_layer = false;
  advance(connection);
}

// ---- Connections that are idle or slow ----------------------------------------------------------

void StreamServer::arm_look_timer() noexcept {
  const PatienceLimits& limits = options_.patience;
  if (!limits.are_any() || look_timer_.is_armed()) return;
  constexpr uint64_t kLooksPerLimit = 8;
  uint64_t pause_ns = kLookNsMax;
  for (const uint64_t limit_ns : {limits.slow_ns_max, limits.idle_ns_max}) {
    if (limit_ns > 0) pause_ns = std::min(pause_ns, limit_ns / kLooksPerLimit);
  }
  options_.loop->own_timers().arm(look_timer_, options_.loop->now_ns() + pause_ns + 1);
}

void StreamServer::look() noexcept {
  BP_DCHECK(is_own_thread());
  options_.loop->look_at_clock();
  for (Connection* one = all_; one != nullptr; one = one->next) {
    Connection& each = *one;
    if (each.socket.is_open() && !each.is_lingering() && !each.is_broken) look_at(each);
  }
  if (acceptor_.open_count() > 0) arm_look_timer();
}

void StreamServer::look_at(Connection& connection) noexcept {
  StreamSession& session = *connection.session;
  const uint64_t now_ns = options_.loop->now_ns();
  const PatienceVerdict verdict =
      connection.patience.look(now_ns, options_.patience, session, connection.state());
  if (verdict == PatienceVerdict::kPatient) return;
  options_.counters->connections_timed_out.add(1);
  if (verdict != PatienceVerdict::kLate) return break_off(connection);
  connection.patience.begin(now_ns);
  session.late();
  advance(connection);
}

// ---- Bytes --------------------------------------------------------------------------------------

// Whether the first `bytes` of the client, in the input of its session, are the layer's.
bool StreamServer::try_start_layer(Connection& connection, uint64_t bytes) noexcept {
  const StreamSession::Input input = connection.session->input();
  if (input.piece_count == 0 || connection.is_lingering()) return false;
  const auto* first = static_cast<const std::byte*>(input.pieces[0].iov_base);
  BP_DCHECK(bytes <= input.pieces[0].iov_len);
  if (!options_.layers->is_begun_by(*first)) return false;
  connection.socket.start_layer({first, bytes});
  connection.session->layer().set(LayerUse::kOffered, true);
  return true;
}

bool StreamServer::may_start_layer(const Connection& connection) const noexcept {
  return connection.session->layer().is_wanted() && !connection.is_broken &&
         !connection.has_peer_ended && !acceptor_.is_draining();
}

// Its session has ended in clear: it goes on within the layer, once all replies are sent and
// nothing is in flight. Bytes that come meanwhile are the layer's, which refuses any others.
void StreamServer::start_layer(Connection& connection) noexcept {
  LayeredSocket& socket = connection.socket;
  if (socket.is_receiving()) return socket.end_receive();
  if (socket.is_sending()) return;
  const auto early = connection.session->begin_layer(std::exchange(connection.early_bytes, 0));
  if (connection.session->foreign() == nullptr) {
    connection.is_ending = false;
    socket.start_layer(early);
  }
  advance(connection);
}

// Bytes have come for which the session has no use.
void StreamServer::drop(Connection& connection, uint64_t bytes) noexcept {
  if (connection.session->layer().is_wanted() && !connection.is_lingering()) {
    connection.early_bytes = bytes;
  } else {
    StreamLinger::drop(connection, bytes);
  }
}

// An operation has ended with an error.
void StreamServer::failed(Connection& connection, int64_t result) noexcept {
  connection.is_broken = true;
  connection.has_failed_layer = result == -EPROTO && connection.socket.is_layered();
}

void StreamServer::received(Connection& connection, int64_t result) noexcept {
  BP_DCHECK(is_own_thread() && connection.socket.is_open());
  if (result < 0 && result != -ECANCELED) failed(connection, result);  // cancelled: by us
  connection.has_peer_ended |= result == 0;
  connection.is_ending |= result <= 0 || acceptor_.is_draining();
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(result, 0));
  const bool may_begin_layer = std::exchange(connection.may_begin_layer, false);
  if (may_begin_layer && bytes > 0 && try_start_layer(connection, bytes)) {
    return advance(connection);
  }
  options_.counters->received_bytes.add(bytes);
  // A connection whose time to linger is over may still receive what it drops.
  if (connection.session->is_over() || connection.is_lingering() || connection.is_dropping) {
    drop(connection, bytes);
  } else if (bytes > 0) {
    connection.session->received(bytes, options_.loop->now_ns());
  }
  advance(connection);
}

void StreamServer::sent(Connection& connection, int64_t result) noexcept {
  BP_DCHECK(is_own_thread() && connection.socket.is_open());
  if (result < 0) failed(connection, result);
  if (result > 0) options_.counters->sent_bytes.add(static_cast<uint64_t>(result));
  connection.session->sent(options_.loop->now_ns());
  advance(connection);
}

// Sends replies that are ready, receives if the session wants more, closes when nothing is left to
// do.
void StreamServer::advance(Connection& connection) noexcept {
  BP_DCHECK(is_own_thread() && connection.socket.is_open());
  LayeredSocket& socket = connection.socket;
  StreamSession& session = *connection.session;
  if (session.foreign() != nullptr && !connection.is_broken) tell_foreign(connection);
  connection.is_broken |= session.foreign() != nullptr;
  if (const auto pieces =
          connection.is_broken || socket.is_sending() ? std::span<iovec>() : session.replies();
      !pieces.empty()) {
    session.handed_over(options_.loop->look_at_clock());  // once for all that this send answers
    socket.send(pieces);
  }
  connection.is_ending |= connection.is_broken || session.is_over();
  if (!connection.is_ending && !socket.is_receiving()) receive(connection);
  if (!connection.is_ending) return;
  if (session.is_waiting() && !connection.is_broken) return;
  if (may_start_layer(connection)) return start_layer(connection);
  if (may_linger(connection)) {
    if (!socket.is_sending()) linger(connection);
    return;
  }
  // Ends the receive: a connection closes with nothing in flight.
  if (socket.is_receiving()) socket.stop_receiving();
  if (connection.is_broken) socket.abort();
  // The session may free the memory that the socket receives into.
  if (socket.is_receiving()) return;
  if (connection.is_broken || !socket.is_sending()) session.leave();
  if (session.is_waiting()) refuse_successor(connection);
  if (!socket.is_sending() && !session.is_waiting() && socket.say_end()) close(connection);
}

void StreamServer::receive(Connection& connection) noexcept {
  const StreamSession::Input input = connection.session->input();
  if (input.piece_count == 0) return;
  if (connection.may_begin_layer) {
    input.pieces[0].iov_len = std::min(input.pieces[0].iov_len, StreamLayer::kEarlyBytesMax);
  }
  connection.socket.receive({input.pieces, input.piece_count}, input.min_bytes);
}

// A page in somebody's browser may have made the peer send this.
void StreamServer::tell_foreign(const Connection& connection) noexcept {
  options_.counters->connections_foreign.add(1);
  if (!log_limit_.try_pass(options_.name)) return;
  char peer[256];
  BP_LOG_WARNING("%s: the client %s was disconnected: it speaks %s, and nothing of it was executed",
                 options_.name, describe_connection(connection.socket.fd(), peer, sizeof peer),
                 connection.session->foreign());
}

// Whether the connection may linger, so that its peer does not lose replies, nor the end of the
// layer.
bool StreamServer::may_linger(const Connection& connection) const noexcept {
  if (connection.is_broken && !connection.has_failed_layer) return false;
  if (connection.socket.is_layered()) return true;
  if (connection.has_peer_ended) return false;
  if (connection.is_lingering()) return connection.linger_bytes_left > 0;
  return connection.session->is_over() ||
         (acceptor_.is_draining() && connection.socket.has_unacknowledged());
}

void StreamServer::linger(Connection& connection) noexcept {
  LayeredSocket& socket = connection.socket;
  if (!connection.is_lingering()) begin_lingering(connection);
  if (socket.is_layered()) return end_layer(connection);
  if (socket.is_receiving()) return;
  if (connection.is_broken) connection.session->leave();
  connection.is_dropping = true;
  lingering_.receive(connection, socket);
}

void StreamServer::begin_lingering(Connection& connection) noexcept {
  BP_KEEPS_VALID(*this);
  if (!connection.socket.is_layered()) connection.socket.stop_sending();
  lingering_.begin(connection);
}

// The layer has to tell the peer the end; then the connection goes on without it.
void StreamServer::end_layer(Connection& connection) noexcept {
  LayeredSocket& socket = connection.socket;
  BP_DCHECK(socket.is_layered() && !socket.is_sending());
  if (socket.is_receiving()) return socket.end_receive();
  if (!socket.say_end()) return;
  if (const int error = socket.remove_layer(); error != 0) failed(connection, -error);
  socket.stop_sending();
  advance(connection);
}

void StreamServer::close(Connection& connection) noexcept {
  BP_KEEPS_VALID(*this);
  lingering_.end(connection);
  connection.socket.close();
  connection.session->reset();
  const Successor next = std::exchange(connection.successor, {});
  if (next.fd >= 0) --successor_count_;
  acceptor_.closed();
  if (next.fd >= 0) {
    if (!acceptor_.is_draining() && connection.socket.open(next.fd, next.terms) == 0) {
      return begin(connection, next.layer_use);
    }
    acceptor_.refuse(next.fd, AcceptOutcome::kTurnedAway);
  }
  free_.push(connection);
}

// The acceptor drains, and has stopped listening.
void StreamServer::drain() noexcept {
  BP_KEEPS_VALID(*this);
  for (Connection* one = all_; one != nullptr; one = one->next) {
    Connection& each = *one;
    if (!each.socket.is_open() || each.is_lingering()) continue;
    // Bytes that arrived before are answered.
    if (each.socket.is_receiving()) {
      each.socket.end_receive();
    } else {
      each.is_ending = true;
    }
  }
}

// Whether a connection closes as soon as its operations have ended.
bool StreamServer::has_closing() const noexcept {
  for (const Connection* each = all_; each != nullptr; each = each->next) {
    const LayeredSocket& socket = each->socket;
    if (!socket.is_open()) continue;
    const bool is_waiting = each->session->is_waiting();
    if (!is_waiting || socket.is_receiving() || socket.is_sending()) return true;
  }
  return false;
}

void StreamServer::end() noexcept {
  if (options_.loop == nullptr) return;
  acceptor_.drain();
  for (Connection* one = all_; one != nullptr; one = one->next) {
    Connection& each = *one;
    if (each.socket.is_open()) break_off(each);
  }
  while (has_closing()) {
    uint32_t work = options_.sockets->poll(kEndBudget);
    if (options_.layers != nullptr) work += options_.layers->poll(kEndBudget);
    if (work == 0) options_.sockets->sleep_until(monotonic_ns() + kNsPerMs);
  }
  for (Connection* each = all_; each != nullptr; each = each->next) {
    LayeredSocket& socket = each->socket;
    if (!socket.is_open()) continue;
    BP_DCHECK(each->session->is_waiting());
    if (socket.say_end()) socket.close();
  }
  options_.loop->own_timers().cancel(look_timer_);
  acceptor_.end();
}

}  // namespace bedplate
