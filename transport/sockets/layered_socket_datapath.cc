#include "transport/sockets/layered_socket_datapath.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bedplate {

LayeredSocket::LayeredSocket(StreamSockets& sockets, StreamLayer* layer,
                             const Callbacks& callbacks) noexcept
    : sockets_(sockets), own_layer_(layer), said_end_(callbacks.said_end) {
  BP_DCHECK(layer == nullptr || callbacks.said_end != nullptr);
  socket_.receive.completed = callbacks.received;
  socket_.receive.context = callbacks.context;
  socket_.send.completed = callbacks.sent;
  socket_.send.context = callbacks.context;
}

int LayeredSocket::open(int fd, void* of_listener) noexcept {
  BP_ASSERT(!is_open() && fd >= 0);
  socket_.fd = fd;
  listener_ = of_listener;
  if (const int outcome = sockets_.attach(socket_); outcome != 0) {
    socket_.fd = -1;
    return outcome;
  }
  is_attached_ = true;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a Unix socket: no harm
  return 0;
}

void LayeredSocket::start_layer(std::span<const std::byte> early) noexcept {
  BP_ASSERT(has_layer() && !is_layered() && is_attached_);
  layer_ = own_layer_;
  is_attached_ = false;
  layer_->open(socket_, early, said_end_, socket_.receive.context);
}

void LayeredSocket::end_receive() noexcept {
  BP_DCHECK(is_receiving());
  if (socket_.receive.is_ending) return;
  if (is_layered()) return layer_->end_receive();
  sockets_.end_receive(socket_);
}

void LayeredSocket::stop_receiving() noexcept { ::shutdown(socket_.fd, SHUT_RD); }

void LayeredSocket::stop_sending() noexcept {
  BP_DCHECK(is_open() && !is_layered() && !is_sending());
  ::shutdown(socket_.fd, SHUT_WR);
}

bool LayeredSocket::has_unacknowledged() const noexcept {
  int bytes = 0;
  return ioctl(socket_.fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

void LayeredSocket::abort() noexcept {
  if (is_layered()) return layer_->abort();
  sockets_.abort(socket_);
}

int LayeredSocket::remove_layer() noexcept {
  BP_ASSERT(is_layered());
  layer_->close();
  layer_ = nullptr;
  const int outcome = sockets_.attach(socket_);
  is_attached_ = outcome == 0;
  return outcome;
}

void LayeredSocket::close() noexcept {
  BP_ASSERT(is_open() && !is_receiving() && !is_sending());
  if (is_layered()) layer_->close();
  layer_ = nullptr;
  if (is_attached_) sockets_.detach(socket_);
  is_attached_ = false;
  ::close(socket_.fd);
  socket_.fd = -1;
}

}  // namespace bedplate
