// The descriptor of a UdpSocket: made, set up and bound as its options say, without memory of the
// pool and without a shard. So it can be opened before the pool exists, and handed to the socket
// later (UdpSocket::adopt).
#pragma once

#include "platform/file.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

// Errors: as DatagramSocket::open's; options.owner is not used. Threads: any.
Result<Fd> open_udp(const DatagramOptions& options, const DatagramShape& shape);

// Sends multicast over the interface of this number from now on. Returns 0 or an errno value.
int send_multicast_over(int fd, bool is_ipv6, uint32_t index) noexcept;

// Logs the sizes of the queues of `fd`, if `options` ask for a size, and the cure if one is
// smaller.
void tell_udp_queues(int fd, const DatagramOptions& options);

// Drops datagrams that arrived at `fd` before anybody wanted them. Returns how many the kernel has
// dropped so far (SO_MEMINFO), for callers that count its drops.
uint32_t forget_what_came(int fd) noexcept;

}  // namespace bedplate
