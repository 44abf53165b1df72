// The descriptor of a UdpSocket: made, set up and bound as its options say, without memory of the
// pool and without a shard. So it can be had before anything is taken, and handed to the socket
// later (UdpSocket::adopt).
#pragma once

#include "platform/file.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

// Errors: as those of DatagramSocket::open; options.owner is not looked at. Threads: any.
Result<Fd> open_udp(const DatagramOptions& options, const DatagramShape& shape);

// From now on multicast leaves by the interface of this number. Returns 0 or an errno value.
int send_multicast_over(int fd, bool is_ipv6, uint32_t index) noexcept;

// Logs how much the queues of `fd` hold, if `options` ask for a size, and the cure if it is less
// than that.
void tell_udp_queues(int fd, const DatagramOptions& options);

// Drops datagrams that came to `fd` before anybody wanted them. Returns how many the kernel has
// dropped so far (SO_MEMINFO), for those that count its drops.
uint32_t forget_what_came(int fd) noexcept;

}  // namespace bedplate
