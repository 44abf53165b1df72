// Finds the sockets that the driver of af_xdp makes.
//
// The driver does not expose them. A program with DPDK is linked such that the call that makes a
// socket comes here first (DPDK_WRAPS in scripts/mk/flags.mk), and this records the socket.
#pragma once

#include <cstdint>
#include <string>

namespace bedplate {

// The last socket made for a queue of an interface; -1: none. The driver owns it. Threads: before
// the seal.
int xdp_socket_of(const std::string& interface, uint16_t queue) noexcept;

}  // namespace bedplate
