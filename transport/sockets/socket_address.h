// The address that a stream socket listens at or connects to: "tcp:127.0.0.1:10809",
// "tcp:[::1]:10809", "unix:/path", or "activation:" for sockets that the service manager passes.
//
// Numeric addresses only: a resolver needs files that a firmware image does not have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Errors (kConfiguration): the answer names the fault of `text`, the cure the expected form.
// Threads: any, for all functions in this file.
Result<SocketAddress> parse_socket_address(std::string_view text);

// Removes the Unix socket file `path`, of SOCK_STREAM or another `type`, if nobody listens on it
// any more. Leaves a socket in use, and any file that is no socket; binding then reports it.
void remove_stale_socket(const std::string& path, int type) noexcept;

// Returns a bound, listening, close-on-exec socket at `address`. TCP has SO_REUSEADDR; an IPv6
// socket takes no IPv4. A Unix socket file that nobody listens on is replaced; one in use is an
// error. Requires: address.kind != kActivation. Errors (kSystem): the system's, with the cure.
// Ownership: the caller's; closing it leaves a Unix socket's file.
Result<Fd> listen_at(const SocketAddress& address);

// Returns `count` such sockets at one TCP address: the kernel gives each new connection to one of
// them, by the addresses and ports of both ends (SO_REUSEPORT, socket(7)). If another program
// listens there, that is an error, even if it shares its port, too. Requires: kTcp4 or kTcp6; at
// least one. Errors (kSystem): as listen_at(); the kernel does not share ports.
Result<std::vector<Fd>> listen_together(const SocketAddress& address, size_t count);
// Whether sockets of the same user may listen at the port of `fd`, beside it.
bool is_port_shared(int fd) noexcept;

// Returns a non-blocking, close-on-exec socket whose connection to `address` is made or under way.
// It becomes writable when the outcome is known, and SO_ERROR has the outcome. Requires:
// address.kind != kActivation. Errors (kSystem): the kernel refuses at once. Allocates nothing.
Result<Fd> start_connecting(const SocketAddress& address);

// Whether only this machine can reach the bound socket `fd`: it is a Unix socket, or bound to a
// loopback address.
bool is_local_socket(int fd) noexcept;
// The same for an address; false for a socket that others have bound (kActivation).
bool is_local_address(const SocketAddress& address) noexcept;

// Makes a TCP connection fail with ETIMEDOUT if its peer is silent for `silence_ns_max`, or up to a
// third longer; on an idle connection at least 2 s. Requires: at least 1 ms. On an idle connection
// the kernel sends probes (tcp(7), keepalive); sent data must be acknowledged within that time
// (TCP_USER_TIMEOUT). A live peer whose window is full has the same time to take some data. A Unix
// socket refuses these options, and needs none.
void notice_silence(int fd, uint64_t silence_ns_max) noexcept;

}  // namespace bedplate
