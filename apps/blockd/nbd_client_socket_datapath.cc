#include "apps/blockd/nbd_client_socket_datapath.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bedplate::nbd {

ClientSocket::ClientSocket(StreamSockets& sockets, TlsStream* tls,
                           const Callbacks& callbacks) noexcept
    : sockets_(sockets), tls_(tls), wake_(callbacks.wake) {
  socket_.receive.completed = callbacks.received;
  socket_.receive.context = callbacks.context;
  socket_.send.completed = callbacks.sent;
  socket_.send.context = callbacks.context;
}

int ClientSocket::open(int fd) noexcept {
  BP_ASSERT(!is_open());
  socket_.fd = fd;
  if (const int outcome = sockets_.attach(socket_); outcome != 0) {
    socket_.fd = -1;
    return outcome;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a Unix socket: no harm
  return 0;
}

void ClientSocket::start_tls() noexcept {
  BP_ASSERT(has_tls());
  tls_->open(socket_, wake_, socket_.receive.context);
}

void ClientSocket::stop_receiving() noexcept { ::shutdown(socket_.fd, SHUT_RD); }

void ClientSocket::abort() noexcept {
  if (is_secure()) return tls_->abort();
  sockets_.abort(socket_);
}

void ClientSocket::close() noexcept {
  if (is_secure()) {
    tls_->close();
  } else {
    sockets_.detach(socket_);
  }
  ::close(socket_.fd);
  socket_.fd = -1;
}

}  // namespace bedplate::nbd
