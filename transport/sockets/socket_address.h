// The address at which a stream socket listens, or to which it connects: "tcp:127.0.0.1:10809",
// "tcp:[::1]:10809", "unix:/path", or "activation:" for sockets that the service manager passes.
//
// Numeric addresses only: a resolver needs files that a firmware image does not have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

struct SocketAddress {
  enum class Kind { kTcp4, kTcp6, kUnix, kActivation };
  Kind kind = Kind::kTcp4;
  std::string host;   // numeric, without brackets; kTcp4 and kTcp6
  uint16_t port = 0;  // kTcp4 and kTcp6; host byte order
  std::string path;   // kUnix

  bool operator==(const SocketAddress&) const = default;

  // The address as the configuration writes it.
  std::string text() const;
};

// Errors (kConfiguration): the answer says what is wrong with `text`, the cure what was expected.
// Threads: any, of all that is here.
Result<SocketAddress> parse_socket_address(std::string_view text);

// Removes the Unix socket's file `path`, of SOCK_STREAM or another `type`, that nobody listens on
// any more. One that is in use, and any file that is no socket, stays: binding there then says so.
void remove_stale_socket(const std::string& path, int type) noexcept;

// A bound, listening, close-on-exec socket at `address`; SO_REUSEADDR on TCP, IPv6 alone on [::]. A
// Unix socket file that nobody listens on any more is replaced; one that is in use is an error.
// Requires: address.kind != kActivation. Errors (kSystem): the system's, with the cure. Ownership:
// the caller's; it does not remove a Unix socket's file.
Result<Fd> listen_at(const SocketAddress& address);

// A close-on-exec socket whose connection to `address` is under way (or made): it does not block,
// is writable when it is decided, and SO_ERROR says how.
// Requires: address.kind != kActivation. Errors (kSystem): refused at once. Allocates nothing.
Result<Fd> start_connecting(const SocketAddress& address);

// Whether what reaches the bound socket `fd` comes from this machine: it is a Unix socket, or bound
// to a loopback address.
bool is_local_socket(int fd) noexcept;
// The same of an address; false for one that others have bound (kActivation).
bool is_local_address(const SocketAddress& address) noexcept;

// Lets a TCP connection fail with ETIMEDOUT after `silence_ns_max`, or a third more, without a sign
// of life from its peer: an idle one is asked by the kernel (tcp(7), keepalive), one that has to
// acknowledge something has that time (TCP_USER_TIMEOUT). A live peer without room has the same
// time to take some of the data. A Unix socket refuses the options, and needs none.
void notice_silence(int fd, uint64_t silence_ns_max) noexcept;

}  // namespace bedplate
