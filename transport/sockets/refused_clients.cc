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
  // The receive in flight ends, and then the connection is closed.
  lingering_.create(
      sockets.loop(), kLingerNs,
      [](void* self, Limited& late) noexcept {
        static_cast<RefusedClients*>(self)->sockets_->abort(static_cast<Client&>(late).socket);
      },
      this);
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
  const auto is_right = [](const Client& each) {
    return each.socket.fd >= 0 || (!each.socket.receive.is_in_flight && !each.is_limited());
  };
  return std::all_of(clients_.begin(), clients_.end(), is_right) && lingering_.is_valid();
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
  lingering_.begin(*client);
  receive(*client);
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
  if (result > 0 && client.is_limited()) return receive(client);
  close(client);
}

void RefusedClients::close(Client& client) noexcept {
  lingering_.end(client);
  sockets_->detach(client.socket);
  ::close(client.socket.fd);
  client.socket.fd = -1;
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
}

}  // namespace bedplate
