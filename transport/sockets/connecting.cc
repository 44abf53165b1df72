#include "transport/sockets/connecting.h"

#include <cerrno>

#include <poll.h>

#include "platform/assert.h"
#include "platform/file.h"

namespace bedplate {
namespace {

void finish(Connecting& connecting, int result) noexcept {
  connecting.loop->own_timers().cancel(connecting.limit);
  connecting.sockets->stop_watching(connecting.watch);
  set_blocking(connecting.fd, true);
  connecting.is_in_flight = false;
  connecting.completed(connecting.context, result);
}

// The kernel has decided: the descriptor is writable or broken. Also called if connect(2) succeeded
// or failed at once, or if the socket was shut down since; then `result` has the outcome.
void decided(void* context, uint32_t events) noexcept {
  auto& connecting = *static_cast<Connecting*>(context);
  int result = connecting.result;
  if (result == -EINPROGRESS) {
    int error_number = (events & POLLNVAL) != 0 ? EBADF : 0;
    socklen_t bytes = sizeof error_number;
    if (getsockopt(connecting.fd, SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) {
      error_number = errno;
    }
    result = -error_number;
  }
  finish(connecting, result);
}

void too_late(void* context) noexcept {
  auto& connecting = *static_cast<Connecting*>(context);
  ::shutdown(connecting.fd, SHUT_RDWR);
  finish(connecting, connecting.result == -ECANCELED ? -ECANCELED : -ETIMEDOUT);
}

}  // namespace

int start_connecting(StreamSockets& sockets, EventLoop& loop, Connecting& connecting,
                     const sockaddr* address, socklen_t address_bytes) noexcept {
  BP_REQUIRE(!connecting.is_in_flight,
             "an attempt to connect begins while it is in flight: start_connecting");
  BP_REQUIRE(connecting.completed != nullptr,
             "an attempt to connect has no function for its outcome: Connecting::completed");
  connecting.sockets = &sockets;
  connecting.loop = &loop;
  connecting.watch.fd = connecting.fd;
  connecting.watch.events = POLLOUT;
  connecting.watch.ready = &decided;
  connecting.watch.context = &connecting;
  if (const int refused = sockets.start_watching(connecting.watch); refused != 0) return refused;
  connecting.is_in_flight = true;
  set_blocking(connecting.fd, false);
  connecting.result = ::connect(connecting.fd, address, address_bytes) == 0 ? 0 : -errno;
  if (connecting.time_ns_max > 0) {
    connecting.limit.context = &connecting;
    connecting.limit.expired = &too_late;
    loop.own_timers().arm(connecting.limit, loop.look_at_clock() + connecting.time_ns_max);
  }
  return 0;
}

void abort_connecting(Connecting& connecting) noexcept {
  if (!connecting.is_in_flight) return;
  connecting.result = -ECANCELED;
  ::shutdown(connecting.fd, SHUT_RDWR);
}

}  // namespace bedplate
