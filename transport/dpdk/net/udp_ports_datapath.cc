#include "transport/dpdk/net/udp_ports_datapath.h"

#include "transport/dpdk/net/port_datagram_socket.h"

namespace bedplate {

bool UdpPorts::has_listeners(const IpAddress& group, uint16_t port) const noexcept {
  if (others_.have_socket(port)) return true;
  for (const PortDatagramSocket* one = sockets_.first(port); one != nullptr;
       one = one->link().next) {
    if (one->local().port == port && one->has_joined(group)) return true;
  }
  return false;
}

}  // namespace bedplate
