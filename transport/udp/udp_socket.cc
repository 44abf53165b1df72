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
#include "transport/udp/udp_descriptor.h"

namespace bedplate {

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
  if (shape.buffer_count == 0 || shape.buffer_count > 1U << 20) {
    return "it can have 1..1048576 buffers";
  }
  if (shape.buffer_bytes == 0 || shape.buffer_bytes % kCacheLineBytes != 0 ||
      shape.buffer_bytes > kJoinedBytesMax) {
    return "a buffer must have 64..65536 bytes, a multiple of 64";
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

Result<void> UdpSocket::open(const DatagramOptions& options) {
  BP_REQUIRE(!is_open(), "a datagram socket is opened that is open: DatagramSocket::open");
  if (options.owner.received == nullptr) {
    return configuration_error_while("opening a datagram socket")
        .set_answer("it has no handler for received datagrams")
        .set_cure("this is a defect of the service");
  }
  BP_TRY_ASSIGN(auto opened, open_udp(options, shape_));
  adopt(std::move(opened), options);
  return {};
}

void UdpSocket::adopt(Fd fd, const DatagramOptions& options) {
  BP_ASSERT(!is_open() && fd.is_open() && options.owner.received != nullptr);
  fd_ = std::move(fd);
  tell_udp_queues(fd_.number(), options);
  lent_count_ = 0;
  for (uint32_t i = 0; i < shape_.buffer_count; ++i) free_[i] = i;
  std::fill_n(is_kept_.get(), shape_.buffer_count, false);
  free_count_ = shape_.buffer_count;
  owner_ = options.owner;
  headroom_bytes_ = options.headroom_bytes;
  service_class_ = options.service_class;
  is_ipv6_ = options.local.ip.family == AF_INET6;
  dropped_count_ = forget_what_came(fd_.number());
  refused_with_ = 0;
  joined_bytes_max_ = kJoinedBytesMax;
  ++generation_;
  BP_DCHECK_SLOW(is_valid());
}

int UdpSocket::start() noexcept {
  BP_REQUIRE_THREAD(sockets_.loop().is_own_thread(), "DatagramSocket::start");
  BP_REQUIRE(is_open() && !is_started_,
             "a datagram socket is started that is not open, or was started: "
             "DatagramSocket::start");
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
    BP_REQUIRE_THREAD(sockets_.loop().is_own_thread(), "DatagramSocket::close");
    sockets_.stop_watching(watch_);
    sockets_.loop().own_timers().cancel(refusal_);
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

namespace {

// A group and its source, if there is one, in the kernel's form.
group_source_req request_of(const IpAddress& group, const IpAddress& source,
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

// Returns 0 or an errno value.
int ask_for_group(int fd, int option, const IpAddress& group, const IpAddress& source,
                  uint32_t index) noexcept {
  const group_source_req request = request_of(group, source, index);
  const size_t bytes = source.family != 0 ? sizeof request : sizeof(group_req);
  const int level = group.family == AF_INET6 ? SOL_IPV6 : SOL_IP;
  return setsockopt(fd, level, option, &request, static_cast<socklen_t>(bytes)) == 0 ? 0 : errno;
}

}  // namespace

Result<void> change_membership(int fd, bool is_join, const IpAddress& group,
                               const IpAddress& source, const char* interface) {
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
  const int number = ask_for_group(fd, source.family != 0 ? specific : any, group, source, index);
  if (number == 0) return {};
  errno = number;
  Error error = error_from_errno("%s the group %s", doing, name.c_str());
  switch (number) {
    case EADDRINUSE: return error.set_cure("join it only once: it is already joined");
    case EADDRNOTAVAIL: return error.set_cure("leave only what was joined, with the same source");
    case ENODEV: return error.set_cure("name an interface, or add a route that determines it");
    case EINVAL:
      return error.set_cure(
          "choose a group in 224.0.0.0/4 or ff00::/8, and a source, both of the socket's family");
    case ENOBUFS: return error.set_cure("raise sysctl net.ipv4.igmp_max_memberships");
    default: return error;
  }
}

Result<void> UdpSocket::join(const IpAddress& group, const IpAddress& source,
                             const char* interface) {
  BP_REQUIRE(is_open(), "a datagram socket joins a group and is not open: DatagramSocket::join");
  return change_membership(fd_.number(), true, group, source, interface);
}

Result<void> UdpSocket::leave(const IpAddress& group, const IpAddress& source,
                              const char* interface) {
  BP_REQUIRE(is_open(), "a datagram socket leaves a group and is not open: DatagramSocket::leave");
  return change_membership(fd_.number(), false, group, source, interface);
}

// Leaves the group, not its one source: to leave a source takes the interface that it was joined
// on, which may be gone. Leaving the group needs no interface and drops its source, too.
int UdpSocket::rejoin(const IpAddress& group, const IpAddress& source, uint32_t left_index,
                      uint32_t index) noexcept {
  BP_ASSERT(is_open());
  if (left_index != 0) (void)ask_for_group(fd_.number(), MCAST_LEAVE_GROUP, group, {}, left_index);
  if (index == 0) return 0;
  const int option = source.family != 0 ? MCAST_JOIN_SOURCE_GROUP : MCAST_JOIN_GROUP;
  return ask_for_group(fd_.number(), option, group, source, index);
}

int UdpSocket::send_multicast_over(uint32_t index) noexcept {
  BP_ASSERT(fd_.is_open());
  return bedplate::send_multicast_over(fd_.number(), is_ipv6_, index);
}

void UdpSocket::say_segmenting_refused() noexcept {
  BP_ASSERT(is_started_ && refused_with_ != 0);
  sockets_.counters().cutting_refusals.add(1);
  log_error(
      error_while("sending segments in one call on a datagram socket")
          .set_answer_errno(refused_with_)
          .set_cure("they are sent one by one from now on, which costs more; the kernel segments "
                    "them if they fit the link, its device computes checksums (`ethtool -K DEVICE "
                    "tx on`), no IPsec is on the path, and Linux is 4.18 or newer"));
}

}  // namespace bedplate
