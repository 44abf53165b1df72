#include "transport/sockets/refused_clients.h"

#include <algorithm>

#include <sys/socket.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

void RefusedClients::create(StreamSockets& sockets) noexcept {
  BP_DCHECK(sockets_ == nullptr);
  sockets_ = &sockets;
  sockets.loop().own_timers().reserve_more(1);
  for (Client& client : clients_) {
    client.all = this;
    client.socket.receive.context = &client;
    client.socket.receive.completed = [](void* context, int64_t result) noexcept {
      auto& its = *static_cast<Client*>(context);
      its.all->received(its, result);
    };
  }
}

bool RefusedClients::is_valid() const noexcept {
  bool has_any = false;
  for (const Client& client : clients_) {
    if (client.socket.fd < 0 && client.socket.receive.is_in_flight) return false;
    has_any |= client.socket.fd >= 0;
  }
  return has_any == timer_.is_armed();
}

void RefusedClients::refuse(int fd, std::string_view words) noexcept {
  BP_DCHECK(fd >= 0);
  if (words.empty()) {
    ::close(fd);
    return;
  }
  BP_ASSERT(sockets_ != nullptr);
  BP_KEEPS_VALID(*this);
  [[maybe_unused]] const ssize_t sent =
      ::send(fd, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(fd, SHUT_WR);
  const auto client = std::find_if(clients_.begin(), clients_.end(),
                                   [](const Client& each) { return each.socket.fd < 0; });
  if (client == clients_.end()) {
    ::close(fd);
    return;
  }
  client->socket.fd = fd;
  if (sockets_->attach(client->socket) != 0) {
    client->socket.fd = -1;
    ::close(fd);
    return;
  }
  client->end_ns = sockets_->loop().now_ns() + kLingerNs;
  receive(*client);
  arm_timer();
}

void RefusedClients::receive(Client& client) noexcept {
  client.dropped = {dropped_, sizeof dropped_};
  client.socket.receive.pieces = &client.dropped;
  client.socket.receive.piece_count = 1;
  sockets_->receive(client.socket);
}

void RefusedClients::received(Client& client, int64_t result) noexcept {
  BP_DCHECK(client.socket.fd >= 0);
  BP_KEEPS_VALID(*this);
  const bool is_late = client.end_ns <= sockets_->loop().now_ns();
  if (result > 0 && !is_late) return receive(client);
  close(client);
  arm_timer();
}

void RefusedClients::close(Client& client) noexcept {
  sockets_->detach(client.socket);
  ::close(client.socket.fd);
  client.socket.fd = -1;
}

// The receive in flight ends, and then the connection is closed.
void RefusedClients::end_late() noexcept {
  const uint64_t now_ns = sockets_->loop().now_ns();
  for (Client& client : clients_) {
    if (client.socket.fd >= 0 && client.end_ns <= now_ns) sockets_->abort(client.socket);
  }
  arm_timer();
}

void RefusedClients::arm_timer() noexcept {
  TimerQueue& timers = sockets_->loop().own_timers();
  const uint64_t now_ns = sockets_->loop().now_ns();
  uint64_t next_ns = TimerQueue::kNever;
  for (const Client& client : clients_) {
    // Once aborted, it is looked at again a whole time later.
    const uint64_t end_ns = client.end_ns <= now_ns ? now_ns + kLingerNs : client.end_ns;
    if (client.socket.fd >= 0) next_ns = std::min(next_ns, end_ns);
  }
  if (next_ns == TimerQueue::kNever) return timers.cancel(timer_);
  timers.arm(timer_, next_ns);
}

void RefusedClients::end() noexcept {
  if (sockets_ == nullptr) return;
  for (Client& client : clients_) {
    if (client.socket.fd >= 0) sockets_->abort(client.socket);
  }
  const auto is_open = [](const Client& each) { return each.socket.fd >= 0; };
  while (std::any_of(clients_.begin(), clients_.end(), is_open)) {
    if (sockets_->poll(kCountMax) == 0) sockets_->sleep_until(monotonic_ns() + kNsPerMs);
  }
  sockets_->loop().own_timers().cancel(timer_);
}

}  // namespace bedplate
