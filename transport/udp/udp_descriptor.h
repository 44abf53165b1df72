// The descriptor of a UdpSocket: made, set up and bound as its options say, without memory of the
// pool and without a shard. So it can be had before anything is taken, and handed to the socket
// later (UdpSocket::adopt).
//
// Tested by tests/transport/udp/udp_socket_test.cc.
#pragma once

#include "platform/file.h"
#include "transport/datagram_socket.h"

namespace bedplate {

// Errors: as those of DatagramSocket::open; options.owner is not looked at. Threads: any.
Result<Fd> open_udp(const DatagramOptions& options, const DatagramShape& shape);

// From now on multicast leaves by the interface of this number. Returns 0 or an errno value.
int send_multicast_over(int fd, bool is_ipv6, uint32_t index) noexcept;

// Says in the log how much the queues of `fd` hold, where `options` ask for it, and what allows
// more where it is less.
void tell_udp_queues(int fd, const DatagramOptions& options);

// Drops what came to `fd` before anybody wanted it. Returns how many datagrams the kernel has
// dropped of it so far (SO_MEMINFO), for those that count its drops.
uint32_t forget_what_came(int fd) noexcept;

}  // namespace bedplate
