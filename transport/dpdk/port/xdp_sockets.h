// Finds the sockets that the driver of af_xdp makes.
//
// The driver tells them to nobody. A program that links DPDK is linked so that the call that makes
// one comes here first (DPDK_WRAPS in scripts/mk/flags.mk), and we record the socket.
#pragma once

#include <cstdint>
#include <string>

namespace bedplate {

// The last socket made for that queue of that interface; -1: none. Threads: before the seal.
int xdp_socket_of(const std::string& interface, uint16_t queue) noexcept;

}  // namespace bedplate
