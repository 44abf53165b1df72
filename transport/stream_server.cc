#include "transport/stream_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "platform/assert.h"

namespace bedplate {

bool StreamServer::is_valid() const noexcept {
  uint64_t open = 0;
  for (uint64_t i = 0; i < connection_count(); ++i) {
    const StreamSocket& socket = connection(i).socket;
    const bool is_open = socket.fd >= 0;
    if (!is_open && (socket.send.is_in_flight || socket.receive.is_in_flight)) return false;
    open += is_open ? 1 : 0;
  }
  if (is_drained() && (!is_draining_ || open_count_ > 0)) return false;
  return open == open_count_ && free_.has_just(connection_count() - open, [&](const auto& one) {
    return one.socket.fd < 0 && one.server == this;
  });
}

void StreamServer::add_listener(int fd) noexcept {
  BP_ASSERT(stride_bytes_ != 0 && fd >= 0);
  BP_ASSERT(listener_count_ < kListenersMax);
  StreamListener& listener = listeners_[listener_count_++];
  listener.fd = fd;
  listener.silence_ns_max = options_.silence_ns_max;
  listener.context = this;
  listener.accepted = [](void* self, int accepted_fd) noexcept {
    static_cast<StreamServer*>(self)->accept(accepted_fd);
  };
}

void StreamServer::start() noexcept {
  BP_ASSERT(is_own_thread());
  for (uint32_t i = 0; i < listener_count_; ++i) options_.sockets->start_listening(listeners_[i]);
}

void StreamServer::accept(int fd) noexcept {
  BP_ASSERT(is_own_thread() && fd >= 0);
  BP_KEEPS_VALID(*this);
  Connection* connection = free_.first();
  if (connection != nullptr) connection->socket.fd = fd;
  if (connection == nullptr || is_draining_ || options_.sockets->attach(connection->socket) != 0) {
    if (connection != nullptr) connection->socket.fd = -1;
    options_.counters->connections_refused.add(1);
    ::close(fd);
    return;
  }
  free_.pop();
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a Unix socket: as well
  options_.counters->connections_total.add(1);
  options_.counters->connections_open.set(++open_count_);
  options_.counters->connections_peak.raise(open_count_);
  connection->is_ending = connection->is_broken = false;
  connection->socket.receive.context = connection->socket.send.context = connection;
  connection->socket.receive.completed = [](void* context, int64_t result) noexcept {
    auto& its = *static_cast<Connection*>(context);
    its.server->received(its, result);
  };
  connection->socket.send.completed = [](void* context, int64_t result) noexcept {
    auto& its = *static_cast<Connection*>(context);
    its.server->sent(its, result);
  };
  advance(*connection);
}

void StreamServer::received(Connection& connection, int64_t result) noexcept {
  BP_DCHECK(is_own_thread() && connection.socket.fd >= 0);
  connection.is_broken |= result < 0;
  connection.is_ending |= result <= 0 || is_draining_;
  if (result > 0) {
    connection.session->received(static_cast<uint64_t>(result), options_.loop->now_ns());
  }
  advance(connection);
}

void StreamServer::sent(Connection& connection, int64_t result) noexcept {
  BP_DCHECK(is_own_thread() && connection.socket.fd >= 0);
  connection.is_broken |= result < 0;
  connection.session->sent(options_.loop->now_ns());
  advance(connection);
}

// Sends what is ready, receives where that makes sense, closes when nothing is left to do.
void StreamServer::advance(Connection& connection) noexcept {
  StreamSocket& socket = connection.socket;
  StreamSession& session = *connection.session;
  if (const auto pieces =
          connection.is_broken || socket.send.is_in_flight ? std::span<iovec>() : session.replies();
      !pieces.empty()) {
    socket.send.pieces = pieces.data();
    socket.send.piece_count = static_cast<uint32_t>(pieces.size());
    session.handed_over(options_.loop->look_at_clock());  // once for all that this send answers
    options_.sockets->send(socket);
  }
  connection.is_ending |= connection.is_broken || session.is_over();
  if (!connection.is_ending && !socket.receive.is_in_flight) {
    const StreamSession::Input input = session.input();
    if (input.piece_count > 0) {
      socket.receive.pieces = input.pieces;
      socket.receive.piece_count = input.piece_count;
      socket.receive.min_bytes = input.min_bytes;
      options_.sockets->receive(socket);
    }
  }
  if (!connection.is_ending) return;
  if (socket.receive.is_in_flight) ::shutdown(socket.fd, SHUT_RD);
  if (connection.is_broken) options_.sockets->abort(socket);
  if (!socket.send.is_in_flight && !socket.receive.is_in_flight) close(connection);
}

void StreamServer::close(Connection& connection) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(!connection.socket.send.is_in_flight && !connection.socket.receive.is_in_flight);
  BP_ASSERT(open_count_ > 0);
  options_.sockets->detach(connection.socket);
  ::close(connection.socket.fd);
  connection.socket.fd = -1;
  connection.session->reset();
  free_.push(connection);
  options_.counters->connections_open.set(--open_count_);
  if (is_draining_ && open_count_ == 0) is_drained_.store(true, std::memory_order_release);
}

void StreamServer::drain() noexcept {
  BP_ASSERT(is_own_thread());
  if (is_draining_) return;
  BP_KEEPS_VALID(*this);
  is_draining_ = true;
  for (uint32_t i = 0; i < listener_count_; ++i) options_.sockets->stop_listening(listeners_[i]);
  for (uint64_t i = 0; i < connection_count(); ++i) {
    Connection& each = connection(i);
    if (each.socket.fd < 0) continue;
    if (each.socket.receive.is_in_flight) {
      ::shutdown(each.socket.fd, SHUT_RD);
    } else {
      each.is_ending = true;
    }
  }
  if (open_count_ == 0) is_drained_.store(true, std::memory_order_release);
}

}  // namespace bedplate
