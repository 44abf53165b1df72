#include <cerrno>

#include "platform/assert.h"
#include "transport/dpdk/net/port_datagram_socket.h"
#include "transport/dpdk/net/udp_ports_datapath.h"

namespace bedplate {

bool UdpPorts::is_taken(const PortDatagramSocket& socket, uint16_t port) const noexcept {
  for (const PortDatagramSocket* one = sockets_.first(port); one != nullptr;
       one = one->link().next) {
    if (one != &socket && one->collides_with(socket, port)) return true;
  }
  return false;
}

int UdpPorts::choose(PortDatagramSocket& socket) noexcept {
  constexpr uint32_t kCount = 65536 - kFirstFree;
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint16_t port = next_free_;
    next_free_ = port == 65535 ? kFirstFree : static_cast<uint16_t>(port + 1);
    // A port with a socket on another shard is skipped: its answers could go to that shard.
    if (others_.is_owned(port) || is_taken(socket, port)) continue;
    socket.set_local_port(port);
    return 0;
  }
  return EADDRINUSE;
}

int UdpPorts::bind(PortDatagramSocket& socket) noexcept {
  BP_ASSERT(!socket.is_open());
  const DatagramAddress local = socket.local();
  if (!is_unspecified(local.ip) && !is_multicast(local.ip) && !routes_.is_own(local.ip) &&
      !routes_.is_broadcast(local.ip)) {
    return EADDRNOTAVAIL;
  }
  if (local.port != 0 && is_taken(socket, local.port)) return EADDRINUSE;
  if (local.port == 0) {
    if (const int outcome = choose(socket); outcome != 0) return outcome;
  }
  BP_DCHECK(!is_taken(socket, socket.local().port));
  if (!sockets_.insert(socket)) return ENOBUFS;
  if (others_.are_there()) others_.set_owner(PortShared::bucket_of(socket.local().port), true);
  return 0;
}

void UdpPorts::release(PortDatagramSocket& socket) noexcept {
  sockets_.remove(socket);
  if (!others_.are_there()) return;
  const uint32_t bucket = PortShared::bucket_of(socket.local().port);
  for (uint32_t i = 0; i < sockets_.count_max(); ++i) {
    const PortDatagramSocket* other = sockets_.at(i);
    if (other != nullptr && PortShared::bucket_of(other->local().port) == bucket) return;
  }
  others_.set_owner(bucket, false);
}

}  // namespace bedplate
