// The descriptor of a UdpSocket. It is made, set up and bound as its options say, without memory of
// the pool and without a shard. So it can be opened before the pool exists, and handed to the
// socket later (UdpSocket::adopt).
#pragma once

#include "platform/file.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

// `shape`: that of the socket that adopts the descriptor. Errors: as DatagramSocket::open's;
// options.owner is not used. Threads: any.
Result<Fd> open_udp(const DatagramOptions& options, const DatagramShape& shape);

// Sends multicast over the interface with this index from now on. Returns 0 or an errno value.
int send_multicast_over(int fd, bool is_ipv6, uint32_t index) noexcept;

// Logs the sizes of the queues of `fd` for which `options` ask for a size; warns, with the cure, if
// the kernel granted less.
void tell_udp_queues(int fd, const DatagramOptions& options);

// Drops the datagrams that have arrived at `fd`, at most about a million. Returns how many the
// kernel has dropped so far (SO_MEMINFO), for callers that count its drops; 0 if it does not tell.
uint32_t forget_what_came(int fd) noexcept;

}  // namespace bedplate
