#include "transport/sockets/slow_sends.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>  // glibc's has no tcpi_bytes_acked
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "platform/assert.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {
namespace {

// The progress of a socket's sends, as far as the backend knows it. io_uring knows it only when a
// send ends, since the kernel does the whole send by itself.
uint64_t progress_of(const StreamSocket& socket) noexcept {
  return (uint64_t{socket.sends} << 40) + socket.send.moved_bytes;
}

// The kernel's measure: bytes that the peer's kernel has acknowledged or, for a socket other than
// TCP's, bytes that the peer has not taken yet. It does not change while the peer takes nothing.
uint64_t taken_by_peer(int fd) noexcept {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) return info.tcpi_bytes_acked;
  int left_bytes = 0;
  ioctl(fd, SIOCOUTQ, &left_bytes);
  return static_cast<uint64_t>(left_bytes);
}

constexpr size_t kAddressBytesMax = sizeof(sockaddr_un::sun_path) + 1;

union Address {
  sockaddr any;
  sockaddr_in ip4;
  sockaddr_in6 ip6;
  sockaddr_un local;
};

// Prints "127.0.0.1:4711", "[::1]:4711", "/run/sock"; nothing for a socket without a name.
void print_address(const Address& address, socklen_t bytes, char* text,
                   size_t text_bytes) noexcept {
  char host[INET6_ADDRSTRLEN] = "";
  text[0] = '\0';
  if (address.any.sa_family == AF_INET) {
    inet_ntop(AF_INET, &address.ip4.sin_addr, host, sizeof host);
    std::snprintf(text, text_bytes, "%s:%u", host, ntohs(address.ip4.sin_port));
  } else if (address.any.sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &address.ip6.sin6_addr, host, sizeof host);
    std::snprintf(text, text_bytes, "[%s]:%u", host, ntohs(address.ip6.sin6_port));
  } else if (address.any.sa_family == AF_UNIX && bytes > offsetof(sockaddr_un, sun_path)) {
    // The kernel may return a path without its NUL.
    const size_t path_bytes =
        std::min(bytes - offsetof(sockaddr_un, sun_path), sizeof address.local.sun_path);
    std::snprintf(text, text_bytes, "%.*s", static_cast<int>(path_bytes), address.local.sun_path);
  }
}

}  // namespace

const char* describe_connection(int fd, char* text, uint32_t text_bytes) noexcept {
  char peer[kAddressBytesMax] = "";
  char own[kAddressBytesMax] = "";
  Address address = {};
  socklen_t bytes = sizeof address;
  if (getpeername(fd, &address.any, &bytes) == 0) {
    print_address(address, bytes, peer, sizeof peer);
  }
  ucred process = {};
  socklen_t process_bytes = sizeof process;
  if (address.any.sa_family == AF_UNIX &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &process_bytes) == 0) {
    std::snprintf(peer, sizeof peer, "process %d", process.pid);
  }
  address = {};
  bytes = sizeof address;
  if (getsockname(fd, &address.any, &bytes) == 0) print_address(address, bytes, own, sizeof own);
  std::snprintf(text, text_bytes, "%s%s%s", peer[0] == '\0' ? "(gone)" : peer,
                own[0] == '\0' ? "" : " at ", own);
  return text;
}

SlowSends::~SlowSends() {
  if (timer_.is_armed()) loop_->own_timers().cancel(timer_);
}

void SlowSends::create(EventLoop& loop, SocketCounters& counters) {
  loop_ = &loop;
  counters_ = &counters;
  loop.own_timers().reserve_more(1);
  timer_.context = this;
  timer_.expired = [](void* self) noexcept { static_cast<SlowSends*>(self)->look(); };
}

void SlowSends::attached(StreamSocket& socket) noexcept {
  socket.sends = 0;
  socket.seen_progress = 0;
  socket.seen_taken = kNothingSeen;
  socket.seen_since_ns = 0;
  socket.previous_attached = nullptr;
  socket.next_attached = first_;
  if (first_ != nullptr) first_->previous_attached = &socket;
  first_ = &socket;
}

void SlowSends::detached(StreamSocket& socket) noexcept {
  StreamSocket* const before = socket.previous_attached;
  BP_DCHECK(before != nullptr || first_ == &socket);
  (before == nullptr ? first_ : before->next_attached) = socket.next_attached;
  if (socket.next_attached != nullptr) socket.next_attached->previous_attached = before;
  if (told_ == &socket) told_ = nullptr;
}

void SlowSends::began(StreamSocket& socket) noexcept {
  ++socket.sends;
  if (!timer_.is_armed()) loop_->own_timers().arm(timer_, loop_->now_ns() + kPauseNs);
}

bool SlowSends::has_moved(StreamSocket& socket) noexcept {
  const uint64_t progress = progress_of(socket);
  const bool has_ended_one = std::exchange(socket.seen_progress, progress) != progress;
  const uint64_t taken = has_ended_one ? kNothingSeen : taken_by_peer(socket.fd);
  return std::exchange(socket.seen_taken, taken) != taken || has_ended_one;
}

void SlowSends::look() noexcept {
  const uint64_t now_ns = loop_->now_ns();
  uint64_t slow_count = 0;
  uint64_t longest_ns = 0;
  const StreamSocket* slowest = nullptr;
  bool is_any_sending = false;
  for (StreamSocket* each = first_; each != nullptr; each = each->next_attached) {
    if (!each->send.is_in_flight) continue;
    is_any_sending = true;
    if (has_moved(*each)) {
      each->seen_since_ns = now_ns;
      continue;
    }
    ++slow_count;
    if (slowest != nullptr && now_ns - each->seen_since_ns <= longest_ns) continue;
    longest_ns = now_ns - each->seen_since_ns;
    slowest = each;
  }
  counters_->slow_clients.set(slow_count);
  counters_->slow_client_ns.set(longest_ns);
  // The same socket may have carried another connection since.
  const uint64_t since_ns = slowest == nullptr ? 0 : slowest->seen_since_ns;
  if (slowest != told_ || since_ns != told_since_ns_) {
    char text[256] = "";  // the longest text; SharedText cuts it to fit
    if (slowest != nullptr) describe_connection(slowest->fd, text, sizeof text);
    counters_->slow_client.set(text);
    told_ = slowest;
    told_since_ns_ = since_ns;
  }
  if (!is_any_sending) return;
  loop_->own_timers().arm(timer_, std::max(now_ns, timer_.deadline_ns) + kPauseNs);
}

}  // namespace bedplate
