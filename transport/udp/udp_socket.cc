#include "transport/udp/udp_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>

#include "platform/assert.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint32_t kJoinedBytesMax = 64 * 1024;

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

}  // namespace

socklen_t to_kernel(const DatagramAddress& address, sockaddr_in6* kernel) noexcept {
  *kernel = {};
  if (address.ip.family == AF_INET) {
    auto& as_ipv4 = *reinterpret_cast<sockaddr_in*>(kernel);
    as_ipv4.sin_family = AF_INET;
    as_ipv4.sin_port = htons(address.port);
    std::memcpy(&as_ipv4.sin_addr, address.ip.bytes, sizeof as_ipv4.sin_addr);
    return sizeof as_ipv4;
  }
  kernel->sin6_family = AF_INET6;
  kernel->sin6_port = htons(address.port);
  kernel->sin6_scope_id = address.interface_index;
  std::memcpy(&kernel->sin6_addr, address.ip.bytes, sizeof kernel->sin6_addr);
  return sizeof *kernel;
}

DatagramAddress from_kernel(const sockaddr_in6& kernel) noexcept {
  DatagramAddress address;
  if (kernel.sin6_family == AF_INET) {
    const auto& as_ipv4 = reinterpret_cast<const sockaddr_in&>(kernel);
    address.ip.family = AF_INET;
    address.port = ntohs(as_ipv4.sin_port);
    std::memcpy(address.ip.bytes, &as_ipv4.sin_addr, sizeof as_ipv4.sin_addr);
  } else if (kernel.sin6_family == AF_INET6) {
    address.ip.family = AF_INET6;
    address.port = ntohs(kernel.sin6_port);
    address.interface_index = kernel.sin6_scope_id;
    std::memcpy(address.ip.bytes, &kernel.sin6_addr, sizeof kernel.sin6_addr);
  }
  return address;
}

const char* UdpSocket::check_shape(const DatagramShape& shape) noexcept {
  if (shape.buffer_count == 0 || shape.buffer_count > 1U << 20) return "it has 1..1048576 buffers";
  if (shape.buffer_bytes == 0 || shape.buffer_bytes % kCacheLineBytes != 0 ||
      shape.buffer_bytes > kJoinedBytesMax) {
    return "a buffer has 64..65536 bytes, a multiple of 64";
  }
  return nullptr;
}

UdpSocket::UdpSocket(StreamSockets& sockets, std::span<std::byte> memory,
                     const DatagramShape& shape)
    : sockets_(sockets),
      memory_(memory.data()),
      shape_(shape),
      free_(std::make_unique<uint32_t[]>(shape.buffer_count)),
      is_kept_(std::make_unique<bool[]>(shape.buffer_count)),
      in_(std::make_unique<Batch>()),
      out_(std::make_unique<Batch>()),
      pieces_(std::make_unique<iovec[]>(kPieceMax)),
      shares_(std::make_unique<Share[]>(kBatchMax)) {
  BP_ASSERT(check_shape(shape) == nullptr);
  BP_ASSERT(memory.size() >= shape.bytes());
  watch_.is_socket = true;
  watch_.context = this;
  watch_.ready = [](void* self, uint32_t events) noexcept {
    static_cast<UdpSocket*>(self)->ready(events);
  };
  refusal_.context = this;
  refusal_.expired = [](void* self) noexcept {
    static_cast<UdpSocket*>(self)->say_segmenting_refused();
  };
}

Result<void> UdpSocket::set(int level, int name, int value, const char* doing) {
  if (setsockopt(fd_.number(), level, name, &value, sizeof value) == 0) return {};
  return error_from_errno("setting up a datagram socket: %s", doing);
}

// A group and, where it has a family, the one source of it: in the kernel's form.
group_source_req to_kernel(const IpAddress& group, const IpAddress& source,
                           uint32_t index) noexcept {
  group_source_req request = {};  // its first two members are those of a group_req
  static_assert(offsetof(group_source_req, gsr_group) == offsetof(group_req, gr_group));
  request.gsr_interface = index;
  to_kernel({group, 0, 0}, reinterpret_cast<sockaddr_in6*>(&request.gsr_group));
  if (source.family != 0) {
    to_kernel({source, 0, 0}, reinterpret_cast<sockaddr_in6*>(&request.gsr_source));
  }
  return request;
}

// A process that may administer the network is given what it asks for. For others the kernel takes
// too large a request for a smaller one, without a word. It doubles all of it, for its own records.
Result<void> UdpSocket::ask_for_queue(int name, int forced_name, uint32_t bytes, const char* what,
                                      const char* sysctl) {
  if (bytes == 0) return {};
  const int asked = static_cast<int>(std::min<uint32_t>(bytes, INT32_MAX / 2));
  if (setsockopt(fd_.number(), SOL_SOCKET, forced_name, &asked, sizeof asked) != 0) {
    BP_TRY(set(SOL_SOCKET, name, asked, what));
  }
  int given = 0;
  socklen_t given_bytes = sizeof given;
  if (getsockopt(fd_.number(), SOL_SOCKET, name, &given, &given_bytes) != 0) {
    return error_from_errno("looking at %s of a datagram socket", what);
  }
  if (given / 2 < asked) {
    BP_LOG_WARNING("%s of a datagram socket is %s, %s were asked for; sysctl -w %s=%u allows them",
                   what, format_bytes(static_cast<uint64_t>(given / 2)).text,
                   format_bytes(bytes).text, sysctl, bytes);
  } else {
    BP_LOG_INFO("%s of a datagram socket is %s", what,
                format_bytes(static_cast<uint64_t>(given / 2)).text);
  }
  return {};
}

Result<void> UdpSocket::set_options(const DatagramOptions& options) {
  const bool is_ipv6 = options.local.ip.family == AF_INET6;
  const int level = is_ipv6 ? SOL_IPV6 : SOL_IP;
  const auto either = [&](int ipv4, int ipv6, int value, const char* doing) {
    return set(level, is_ipv6 ? ipv6 : ipv4, value, doing);
  };
  if (is_ipv6) BP_TRY(set(SOL_IPV6, IPV6_V6ONLY, 1, "IPv6 alone"));
  if (options.shares_port) {
    // Of those that share a group's port by SO_REUSEPORT one alone gets its datagrams, whichever
    // interface each has joined it by.
    const int how = options.local.ip.is_multicast() ? SO_REUSEADDR : SO_REUSEPORT;
    BP_TRY(set(SOL_SOCKET, how, 1, "sharing its port"));
  }
  BP_TRY(either(IP_PKTINFO, IPV6_RECVPKTINFO, 1, "local addresses"));
  BP_TRY(either(IP_RECVTOS, IPV6_RECVTCLASS, 1, "ECN"));
  BP_TRY(either(IP_RECVERR, IPV6_RECVERR, 1, "errors"));
  BP_TRY(either(IP_MULTICAST_ALL, IPV6_MULTICAST_ALL, 0, "only the groups that it joins"));
  BP_TRY(set(SOL_SOCKET, SO_TIMESTAMPNS, 1, "times"));
  BP_TRY(set(SOL_SOCKET, SO_RXQ_OVFL, 1, "counting drops"));
  BP_TRY(either(IP_TOS, IPV6_TCLASS, options.service_class << 2, "its class of service"));
  BP_TRY(either(IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS, options.multicast_hops, "multicast hops"));
  BP_TRY(either(IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP, options.hears_own_multicast,
                "hearing its own multicast"));
  if (options.sends_broadcast && !is_ipv6) {
    BP_TRY(set(SOL_SOCKET, SO_BROADCAST, 1, "sending to broadcast addresses"));
  }
  if (options.joins_received) BP_TRY(set(SOL_UDP, UDP_GRO, 1, "joining what is received"));
  if (options.multicast_interface != nullptr) {
    const uint32_t index = if_nametoindex(options.multicast_interface);
    if (index == 0) {
      return error_from_errno("sending multicast over %s", options.multicast_interface)
          .set_cure("name an interface that this machine has (`ip link` lists them)");
    }
    is_ipv6_ = is_ipv6;
    if (send_multicast_over(index) != 0) {
      return error_from_errno("sending multicast over %s", options.multicast_interface);
    }
  }
  BP_TRY(ask_for_queue(SO_RCVBUF, SO_RCVBUFFORCE, options.receive_queue_bytes, "the receive queue",
                       "net.core.rmem_max"));
  return ask_for_queue(SO_SNDBUF, SO_SNDBUFFORCE, options.send_queue_bytes, "the send queue",
                       "net.core.wmem_max");
}

Result<void> UdpSocket::open(const DatagramOptions& options) {
  BP_ASSERT(!is_open());
  const auto refuse = [](const char* answer, const char* cure) {
    Error error;
    error.kind = ErrorKind::kConfiguration;
    return error.set_doing("opening a datagram socket")
        .set_answer("%s", answer)
        .set_cure("%s", cure);
  };
  if (options.owner.received == nullptr) {
    return refuse("nobody takes what it receives", "this is a defect of the service");
  }
  if (options.local.ip.family != AF_INET && options.local.ip.family != AF_INET6) {
    return refuse("it has no address", "bind it to one; 0.0.0.0 and [::] are all of a family");
  }
  if (options.peer.is_there() && options.peer.ip.family != options.local.ip.family) {
    return refuse("its peer is of the other family", "have both IPv4, or both IPv6");
  }
  if (options.joins_received &&
      (shape_.buffer_bytes < kJoinedBytesMax || options.headroom_bytes != 0)) {
    return refuse("joined datagrams do not fit into its buffers",
                  "plan buffers of 65536 bytes, without headroom");
  }
  if (options.headroom_bytes >= shape_.buffer_bytes) {
    return refuse("nothing is left of its buffers behind the headroom", "plan larger buffers");
  }
  if (options.service_class > 63) {
    return refuse("its class of service has more than six bits", "choose one of 0..63");
  }
  fd_ = Fd(socket(options.local.ip.family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_.is_open()) return error_from_errno("making a datagram socket");
  const auto prepare = [&]() -> Result<void> {
    BP_TRY(set_options(options));
    sockaddr_in6 name;
    socklen_t bytes = to_kernel(options.local, &name);
    if (bind(fd_.number(), reinterpret_cast<sockaddr*>(&name), bytes) != 0) {
      const int number = errno;
      return error_from_errno("binding a datagram socket to %s", options.local.text().c_str())
          .set_cure("%s", cure_of_bind(number));
    }
    if (!options.peer.is_there()) return {};
    bytes = to_kernel(options.peer, &name);
    if (connect(fd_.number(), reinterpret_cast<sockaddr*>(&name), bytes) != 0) {
      return error_from_errno("connecting a datagram socket to %s", options.peer.text().c_str())
          .set_cure("choose an address that a route leads to (`ip route get`)");
    }
    return {};
  };
  if (auto prepared = prepare(); !prepared.ok()) {
    fd_.close();
    return prepared;
  }
  lent_count_ = 0;
  for (uint32_t i = 0; i < shape_.buffer_count; ++i) free_[i] = i;
  std::fill_n(is_kept_.get(), shape_.buffer_count, false);
  free_count_ = shape_.buffer_count;
  owner_ = options.owner;
  headroom_bytes_ = options.headroom_bytes;
  service_class_ = options.service_class;
  is_ipv6_ = options.local.ip.family == AF_INET6;
  dropped_count_ = 0;
  refused_with_ = 0;
  joined_bytes_max_ = kJoinedBytesMax;
  ++generation_;
  BP_DCHECK_SLOW(is_valid());
  return {};
}

int UdpSocket::start() noexcept {
  BP_ASSERT(sockets_.loop().is_own_thread());
  BP_ASSERT(is_open() && !is_started_);
  watch_.fd = fd_.number();
  watch_.events = POLLIN;
  const int outcome = sockets_.start_watching(watch_);
  is_started_ = outcome == 0;
  BP_DCHECK_SLOW(is_valid());
  return outcome;
}

void UdpSocket::close() noexcept {
  if (!is_open()) return;
  if (is_started_) {
    BP_ASSERT(sockets_.loop().is_own_thread());
    sockets_.stop_watching(watch_);
    sockets_.loop().timers().cancel(refusal_);
  }
  is_started_ = wants_room_ = false;
  fd_.close();
  ++generation_;
  BP_DCHECK_SLOW(is_valid());
}

DatagramAddress UdpSocket::local() const noexcept {
  sockaddr_in6 name = {};
  socklen_t bytes = sizeof name;
  if (getsockname(fd_.number(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
  return from_kernel(name);
}

// Returns 0 or an errno value.
int UdpSocket::ask_for_group(int option, const IpAddress& group, const IpAddress& source,
                             uint32_t index) noexcept {
  const group_source_req request = to_kernel(group, source, index);
  const size_t bytes = source.family != 0 ? sizeof request : sizeof(group_req);
  const int level = group.family == AF_INET6 ? SOL_IPV6 : SOL_IP;
  return setsockopt(fd_.number(), level, option, &request, static_cast<socklen_t>(bytes)) == 0
             ? 0
             : errno;
}

Result<void> UdpSocket::change_membership(bool is_join, const IpAddress& group,
                                          const IpAddress& source, const char* interface) {
  BP_ASSERT(is_open());
  const char* doing = is_join ? "joining" : "leaving";
  const std::string name = DatagramAddress{group, 0, 0}.text();
  uint32_t index = 0;
  if (interface != nullptr) {
    index = if_nametoindex(interface);
    if (index == 0) {
      return error_from_errno("%s the group %s over %s", doing, name.c_str(), interface)
          .set_cure("name an interface that this machine has (`ip link` lists them)");
    }
  }
  const int any = is_join ? MCAST_JOIN_GROUP : MCAST_LEAVE_GROUP;
  const int specific = is_join ? MCAST_JOIN_SOURCE_GROUP : MCAST_LEAVE_SOURCE_GROUP;
  const int number = ask_for_group(source.family != 0 ? specific : any, group, source, index);
  if (number == 0) return {};
  errno = number;
  Error error = error_from_errno("%s the group %s", doing, name.c_str());
  switch (number) {
    case EADDRINUSE: return error.set_cure("it is joined already: join it once");
    case EADDRNOTAVAIL: return error.set_cure("leave what was joined, with the same source");
    case ENODEV:
      return error.set_cure("no route says over which interface: name one, or add a route");
    case EINVAL:
      return error.set_cure("a group is 224.0.0.0/4 or ff00::/8, of the socket's family; so is its "
                            "source of that family");
    case ENOBUFS: return error.set_cure("sysctl -w net.ipv4.igmp_max_memberships allows more");
    default: return error;
  }
}

Result<void> UdpSocket::join(const IpAddress& group, const IpAddress& source,
                             const char* interface) {
  return change_membership(true, group, source, interface);
}

Result<void> UdpSocket::leave(const IpAddress& group, const IpAddress& source,
                              const char* interface) {
  return change_membership(false, group, source, interface);
}

// To leave one source takes the interface that it was joined over, which may be gone; the group can
// be left without, with its source.
int UdpSocket::rejoin(const IpAddress& group, const IpAddress& source, uint32_t left_index,
                      uint32_t index) noexcept {
  BP_ASSERT(is_open());
  if (left_index != 0) (void)ask_for_group(MCAST_LEAVE_GROUP, group, {}, left_index);
  if (index == 0) return 0;
  const int option = source.family != 0 ? MCAST_JOIN_SOURCE_GROUP : MCAST_JOIN_GROUP;
  return ask_for_group(option, group, source, index);
}

int UdpSocket::send_multicast_over(uint32_t index) noexcept {
  BP_ASSERT(fd_.is_open());
  const auto number = static_cast<int>(index);
  ip_mreqn request = {};
  request.imr_ifindex = number;
  const int outcome =
      is_ipv6_ ? setsockopt(fd_.number(), SOL_IPV6, IPV6_MULTICAST_IF, &number, sizeof number)
               : setsockopt(fd_.number(), SOL_IP, IP_MULTICAST_IF, &request, sizeof request);
  return outcome == 0 ? 0 : errno;
}

void UdpSocket::say_segmenting_refused() noexcept {
  BP_ASSERT(is_started_ && refused_with_ != 0);
  sockets_.counters().cutting_refusals.add(1);
  Error error;
  error.set_doing("sending segments in one call on a datagram socket");
  error.set_answer_errno(refused_with_);
  error.set_cure("they are sent one by one from now on, which costs more; the kernel cuts them "
                 "where they fit the link, its device computes checksums (`ethtool -K DEVICE tx "
                 "on`), no IPsec is on the way, and Linux is 4.18 or newer");
  log_error(error);
}

}  // namespace bedplate
