#include "transport/sockets/socket_address.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr int kListenBacklog = 1024;
constexpr const char* kExpected =
    "write \"tcp:ADDRESS:PORT\" with a numeric address ([...] around IPv6), \"unix:/PATH\" or "
    "\"activation:\"";

Error bad_address(std::string_view text, const char* what) {
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_answer("\"%.*s\" is not a listen address: %s", static_cast<int>(text.size()),
                   text.data(), what);
  error.set_cure("%s", kExpected);
  return error;
}

bool is_loopback(in_addr address) noexcept { return ntohl(address.s_addr) >> 24 == 127; }

bool consume_prefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

Result<SocketAddress> parse_tcp(std::string_view text, std::string_view rest) {
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text, "the port is missing");
  SocketAddress address;
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  if (!parse_number(port, &address.port) || address.port == 0) {
    return bad_address(text, "the port is not a number from 1 to 65535");
  }
  address.kind = SocketAddress::Kind::kTcp4;
  if (host.starts_with('[') && host.ends_with(']')) {
    address.kind = SocketAddress::Kind::kTcp6;
    host = host.substr(1, host.size() - 2);
  }
  address.host = host;
  in6_addr binary{};  // large enough for both families
  const int family = address.kind == SocketAddress::Kind::kTcp6 ? AF_INET6 : AF_INET;
  if (inet_pton(family, address.host.c_str(), &binary) != 1) {
    return bad_address(text, "the address is not numeric");
  }
  if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&binary)) {
    return bad_address(text, "an IPv6 socket accepts no IPv4; write the plain IPv4 address");
  }
  return address;
}

Result<SocketAddress> parse_unix(std::string_view text, std::string_view path) {
  if (!path.starts_with('/')) return bad_address(text, "the path must begin with /");
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return bad_address(text, "the path has more than 107 bytes");
  }
  SocketAddress address;
  address.kind = SocketAddress::Kind::kUnix;
  address.path = path;
  return address;
}

union AnySocketAddress {
  sockaddr generic;
  sockaddr_in tcp4;
  sockaddr_in6 tcp6;
  sockaddr_un unix_domain;
};

socklen_t to_kernel(const SocketAddress& address, AnySocketAddress* kernel) {
  std::memset(kernel, 0, sizeof *kernel);
  switch (address.kind) {
    case SocketAddress::Kind::kTcp4:
      kernel->tcp4.sin_family = AF_INET;
      kernel->tcp4.sin_port = htons(address.port);
      inet_pton(AF_INET, address.host.c_str(), &kernel->tcp4.sin_addr);
      return sizeof kernel->tcp4;
    case SocketAddress::Kind::kTcp6:
      kernel->tcp6.sin6_family = AF_INET6;
      kernel->tcp6.sin6_port = htons(address.port);
      inet_pton(AF_INET6, address.host.c_str(), &kernel->tcp6.sin6_addr);
      return sizeof kernel->tcp6;
    case SocketAddress::Kind::kUnix:
      kernel->unix_domain.sun_family = AF_UNIX;
      std::memcpy(kernel->unix_domain.sun_path, address.path.c_str(), address.path.size() + 1);
      return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.path.size() + 1);
    case SocketAddress::Kind::kActivation: break;
  }
  BP_ASSERT(!"activation sockets are inherited, not opened");
  return 0;
}

// The cure when the kernel refuses, by errno, to bind or listen.
const char* cure_of_refusal(int error_number, bool is_unix) {
  switch (error_number) {
    case EADDRINUSE:
      return is_unix ? "stop the program that listens there, remove the file, or choose another "
                       "path to listen at"
                     : "stop the program that listens there (`ss -ltnp` names it), or choose "
                       "another port";
    case EADDRNOTAVAIL: return "choose an address that this machine has (`ip address` lists them)";
    case EACCES:
    case EPERM:
    case EROFS:
      return is_unix ? "choose a directory that this user may write to"
                     : "choose a port over 1023, or run as root";
    case ENOENT:
    case ENOTDIR: return "make its directory, or choose another path";
    default: return "choose another address to listen at";
  }
}

// Called before bind().
void prepare_tcp(int fd, SocketAddress::Kind kind) noexcept {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (kind == SocketAddress::Kind::kTcp6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
}

bool share_port(int fd) noexcept {
  const int on = 1;
  return setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0;
}

Error not_shared(const SocketAddress& address, size_t count) {
  return error_from_errno("listening at %s with %zu sockets, which share the port",
                          address.text().c_str(), count)
      .set_cure("use a kernel with SO_REUSEPORT, or listen there on one shard");
}

}  // namespace

std::string SocketAddress::text() const {
  switch (kind) {
    case Kind::kTcp4: return "tcp:" + host + ":" + std::to_string(port);
    case Kind::kTcp6: return "tcp:[" + host + "]:" + std::to_string(port);
    case Kind::kUnix: return "unix:" + path;
    case Kind::kActivation: break;
  }
  return "activation:";
}

Result<SocketAddress> parse_socket_address(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    return bad_address(text, "it has a NUL byte");  // c_str() would cut it short
  }
  std::string_view rest = text;
  if (consume_prefix(&rest, "tcp:")) return parse_tcp(text, rest);
  if (consume_prefix(&rest, "unix:")) return parse_unix(text, rest);
  if (rest == "activation:") {
    SocketAddress address;
    address.kind = SocketAddress::Kind::kActivation;
    return address;
  }
  return bad_address(text, "it does not begin with a known kind");
}

void remove_stale_socket(const std::string& path, int type) noexcept {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return;
  path.copy(address.sun_path, path.size());
  const Fd probe(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.is_open()) return;
  if (connect(probe.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED) {
    unlink(path.c_str());
  }
}

Result<Fd> listen_at(const SocketAddress& address) {
  AnySocketAddress kernel;
  const socklen_t kernel_bytes = to_kernel(address, &kernel);
  const bool is_unix = address.kind == SocketAddress::Kind::kUnix;
  Fd fd(socket(kernel.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return error_from_errno("listening at %s", address.text().c_str());
  if (is_unix) {
    remove_stale_socket(address.path, SOCK_STREAM);
  } else {
    prepare_tcp(fd.number(), address.kind);
  }
  if (bind(fd.number(), &kernel.generic, kernel_bytes) != 0 ||
      listen(fd.number(), kListenBacklog) != 0) {
    const int error_number = errno;
    return error_from_errno("listening at %s", address.text().c_str())
        .set_cure("%s", cure_of_refusal(error_number, is_unix));
  }
  return fd;
}

// The first socket listens before it shares its port: the kernel compares sockets that listen, and
// admits this one only if none listens there that it would have to share with. So of two programs
// that begin at the same time one is refused. The others join the first.
Result<std::vector<Fd>> listen_together(const SocketAddress& address, size_t count) {
  BP_ASSERT(address.kind == SocketAddress::Kind::kTcp4 ||
            address.kind == SocketAddress::Kind::kTcp6);
  BP_ASSERT(count > 0);
  std::vector<Fd> all;
  BP_TRY_ASSIGN(Fd first, listen_at(address));
  all.push_back(std::move(first));
  if (count == 1) return all;
  AnySocketAddress bound;  // with the port that the kernel has chosen, if the address has port 0
  socklen_t bytes = sizeof bound;
  if (!share_port(all[0].number()) || getsockname(all[0].number(), &bound.generic, &bytes) != 0) {
    return not_shared(address, count);
  }
  while (all.size() < count) {
    Fd fd(socket(bound.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.is_open()) return not_shared(address, count);
    prepare_tcp(fd.number(), address.kind);
    if (!share_port(fd.number()) || bind(fd.number(), &bound.generic, bytes) != 0 ||
        listen(fd.number(), kListenBacklog) != 0) {
      return not_shared(address, count);
    }
    all.push_back(std::move(fd));
  }
  return all;
}

bool is_port_shared(int fd) noexcept {
  int value = 0;
  socklen_t bytes = sizeof value;
  return getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &value, &bytes) == 0 && value != 0;
}

Result<Fd> start_connecting(const SocketAddress& address) {
  AnySocketAddress kernel;
  const socklen_t bytes = to_kernel(address, &kernel);
  Fd fd(socket(kernel.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.is_open() && (connect(fd.number(), &kernel.generic, bytes) == 0 || errno == EINPROGRESS)) {
    return fd;
  }
  if (address.kind == SocketAddress::Kind::kUnix) {
    return error_from_errno("connecting to %s", address.path.c_str())
        .set_cure("check that a server listens there, and that this user may connect");
  }
  return error_from_errno("connecting to %s, port %u", address.host.c_str(), address.port)
      .set_cure("check that a server listens there, and that there is a route to it");
}

bool is_local_socket(int fd) noexcept {
  sockaddr_storage bound = {};
  socklen_t bytes = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return false;
  if (bound.ss_family == AF_UNIX) return true;
  if (bound.ss_family == AF_INET) {
    return is_loopback(reinterpret_cast<const sockaddr_in&>(bound).sin_addr);
  }
  if (bound.ss_family != AF_INET6) return false;
  const in6_addr& host = reinterpret_cast<const sockaddr_in6&>(bound).sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&host)) return IN6_IS_ADDR_LOOPBACK(&host);
  in_addr mapped = {};
  std::memcpy(&mapped, host.s6_addr + 12, sizeof mapped);
  return is_loopback(mapped);
}

bool is_local_address(const SocketAddress& address) noexcept {
  in_addr four = {};
  in6_addr six = {};
  switch (address.kind) {
    case SocketAddress::Kind::kUnix: return true;
    case SocketAddress::Kind::kTcp4:
      return inet_pton(AF_INET, address.host.c_str(), &four) == 1 && is_loopback(four);
    case SocketAddress::Kind::kTcp6:
      return inet_pton(AF_INET6, address.host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
    case SocketAddress::Kind::kActivation: return false;
  }
  return false;
}

// Probes begin after a third of the time, and follow at intervals of a third. The user timeout
// replaces the limit on the number of probes: the kernel gives up at the first probe due after it.
void notice_silence(int fd, uint64_t silence_ns_max) noexcept {
  constexpr uint64_t kProbeMaxS = 32767;  // the kernel takes no longer one
  const auto silence_ms = static_cast<int>(std::min<uint64_t>(silence_ns_max / kNsPerMs, INT_MAX));
  if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms) != 0) return;
  const auto third_s =
      static_cast<int>(std::clamp<uint64_t>(silence_ns_max / (3 * kNsPerSecond), 1, kProbeMaxS));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &third_s, sizeof third_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &third_s, sizeof third_s);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

}  // namespace bedplate
