#include "transport/udp/udp_descriptor.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "platform/assert.h"
#include "platform/log.h"
#include "platform/units.h"
#include "transport/udp/udp_socket.h"

namespace bedplate {
namespace {

// The number of small datagrams in the largest queue, rounded up generously. The limit keeps a fast
// sender from holding up the boot.
constexpr int kForgottenMax = 1 << 20;

const char* cure_of_bind(int error_number) noexcept {
  switch (error_number) {
    case EADDRINUSE:
      return "stop the program that receives there (`ss -lunp` names it), choose another port, or "
             "let both share it";
    case EADDRNOTAVAIL: return "choose an address that this machine has (`ip address` lists them)";
    case EACCES: return "choose a port over 1023, or run as root";
    default: return "choose another address";
  }
}

Result<void> set(int fd, int level, int name, int value, const char* doing) {
  if (setsockopt(fd, level, name, &value, sizeof value) == 0) return {};
  return error_from_errno("setting up a datagram socket: %s", doing);
}

int asked_of(uint32_t bytes) noexcept {
  return static_cast<int>(std::min<uint32_t>(bytes, INT32_MAX / 2));
}

// Tries the forced option first: a process that may administer the network gets the size that it
// asks for. For others the kernel silently reduces a size over the limit.
Result<void> ask_for_queue(int fd, int name, int forced_name, uint32_t bytes, const char* what) {
  if (bytes == 0) return {};
  const int asked = asked_of(bytes);
  if (setsockopt(fd, SOL_SOCKET, forced_name, &asked, sizeof asked) == 0) return {};
  return set(fd, SOL_SOCKET, name, asked, what);
}

// The kernel doubles the size, for its own records.
void tell_queue(int fd, int name, uint32_t bytes, const char* what, const char* sysctl) {
  int given = 0;
  socklen_t given_bytes = sizeof given;
  if (bytes == 0 || getsockopt(fd, SOL_SOCKET, name, &given, &given_bytes) != 0) return;
  const UnitText has = format_bytes(static_cast<uint64_t>(given / 2));
  if (given / 2 < asked_of(bytes)) {
    BP_LOG_WARNING(
        "%s of a datagram socket is %s, but %s were requested; sysctl -w %s=%u allows them", what,
        has.text, format_bytes(bytes).text, sysctl, bytes);
  } else {
    BP_LOG_INFO("%s of a datagram socket is %s", what, has.text);
  }
}

Result<void> set_options(int fd, const DatagramOptions& options) {
  const bool is_ipv6 = options.local.ip.family == AF_INET6;
  const int level = is_ipv6 ? SOL_IPV6 : SOL_IP;
  const auto either = [&](int ipv4, int ipv6, int value, const char* doing) {
    return set(fd, level, is_ipv6 ? ipv6 : ipv4, value, doing);
  };
  if (is_ipv6) BP_TRY(set(fd, SOL_IPV6, IPV6_V6ONLY, 1, "IPv6 only"));
  if (options.shares_port) {
    // A group needs SO_REUSEADDR: of several sockets that share a port by SO_REUSEPORT only one
    // gets the group's datagrams, whichever interface each has joined by.
    const int how = options.local.ip.is_multicast() ? SO_REUSEADDR : SO_REUSEPORT;
    BP_TRY(set(fd, SOL_SOCKET, how, 1, "sharing its port"));
  }
  BP_TRY(either(IP_PKTINFO, IPV6_RECVPKTINFO, 1, "local addresses"));
  BP_TRY(either(IP_RECVTOS, IPV6_RECVTCLASS, 1, "ECN"));
  BP_TRY(either(IP_RECVERR, IPV6_RECVERR, 1, "errors"));
  BP_TRY(either(IP_MULTICAST_ALL, IPV6_MULTICAST_ALL, 0, "only the groups that it joins"));
  BP_TRY(set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1, "times"));
  BP_TRY(set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1, "counting drops"));
  BP_TRY(either(IP_TOS, IPV6_TCLASS, options.service_class << 2, "its class of service"));
  BP_TRY(either(IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS, options.multicast_hops, "multicast hops"));
  BP_TRY(either(IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP, options.hears_own_multicast,
                "hearing its own multicast"));
  if (options.sends_broadcast && !is_ipv6) {
    BP_TRY(set(fd, SOL_SOCKET, SO_BROADCAST, 1, "sending to broadcast addresses"));
  }
  if (options.joins_received) BP_TRY(set(fd, SOL_UDP, UDP_GRO, 1, "joining received datagrams"));
  if (options.multicast_interface != nullptr) {
    const uint32_t index = if_nametoindex(options.multicast_interface);
    if (index == 0) {
      return error_from_errno("sending multicast over %s", options.multicast_interface)
          .set_cure("name an interface that this machine has (`ip link` lists them)");
    }
    if (send_multicast_over(fd, is_ipv6, index) != 0) {
      return error_from_errno("sending multicast over %s", options.multicast_interface);
    }
  }
  BP_TRY(ask_for_queue(fd, SO_RCVBUF, SO_RCVBUFFORCE, options.receive_queue_bytes,
                       "the receive queue"));
  return ask_for_queue(fd, SO_SNDBUF, SO_SNDBUFFORCE, options.send_queue_bytes, "the send queue");
}

Result<void> bind_as_asked(int fd, const DatagramOptions& options) {
  sockaddr_in6 name;
  socklen_t bytes = to_kernel(options.local, &name);
  if (bind(fd, reinterpret_cast<sockaddr*>(&name), bytes) != 0) {
    const int number = errno;
    return error_from_errno("binding a datagram socket to %s", options.local.text().c_str())
        .set_cure("%s", cure_of_bind(number));
  }
  if (!options.peer.is_there()) return {};
  bytes = to_kernel(options.peer, &name);
  if (connect(fd, reinterpret_cast<sockaddr*>(&name), bytes) != 0) {
    return error_from_errno("connecting a datagram socket to %s", options.peer.text().c_str())
        .set_cure("choose an address that has a route (`ip route get`)");
  }
  return {};
}

}  // namespace

int send_multicast_over(int fd, bool is_ipv6, uint32_t index) noexcept {
  const auto number = static_cast<int>(index);
  ip_mreqn request = {};
  request.imr_ifindex = number;
  const int outcome = is_ipv6 ? setsockopt(fd, SOL_IPV6, IPV6_MULTICAST_IF, &number, sizeof number)
                              : setsockopt(fd, SOL_IP, IP_MULTICAST_IF, &request, sizeof request);
  return outcome == 0 ? 0 : errno;
}

Result<Fd> open_udp(const DatagramOptions& options, const DatagramShape& shape) {
  const auto refuse = [](const char* answer, const char* cure) {
    return configuration_error_while("opening a datagram socket")
        .set_answer("%s", answer)
        .set_cure("%s", cure);
  };
  if (options.local.ip.family != AF_INET && options.local.ip.family != AF_INET6) {
    return refuse("it has no address", "bind it to one; 0.0.0.0 and [::] mean all of a family");
  }
  if (options.peer.is_there() && options.peer.ip.family != options.local.ip.family) {
    return refuse("its peer has the other address family", "make both IPv4, or both IPv6");
  }
  if (options.joins_received &&
      (shape.buffer_bytes < UdpSocket::kJoinedBytesMax || options.headroom_bytes != 0)) {
    return refuse("joined datagrams do not fit into its buffers",
                  "plan buffers of 65536 bytes, without headroom");
  }
  if (options.headroom_bytes >= shape.buffer_bytes) {
    return refuse("its headroom leaves no space in its buffers", "plan larger buffers");
  }
  if (options.service_class > 63) {
    return refuse("its class of service has more than six bits", "choose one of 0..63");
  }
  Fd fd(socket(options.local.ip.family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return error_from_errno("making a datagram socket");
  BP_TRY(set_options(fd.number(), options));
  BP_TRY(bind_as_asked(fd.number(), options));
  return fd;
}

void tell_udp_queues(int fd, const DatagramOptions& options) {
  tell_queue(fd, SO_RCVBUF, options.receive_queue_bytes, "the receive queue", "net.core.rmem_max");
  tell_queue(fd, SO_SNDBUF, options.send_queue_bytes, "the send queue", "net.core.wmem_max");
}

uint32_t forget_what_came(int fd) noexcept {
  char none = 0;
  // An error of an earlier send (ICMP) comes before the next datagram.
  const auto is_empty = [&] { return recv(fd, &none, 0, MSG_DONTWAIT) < 0 && errno == EAGAIN; };
  for (int i = 0; i < kForgottenMax && !is_empty(); ++i) continue;
  uint32_t numbers[SK_MEMINFO_VARS] = {};
  socklen_t bytes = sizeof numbers;
  if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, numbers, &bytes) != 0) return 0;
  return numbers[SK_MEMINFO_DROPS];
}

}  // namespace bedplate
