// Finds RDMA devices: their drivers in this program, and their ports.
//
// A static program has the drivers that verbs_drivers.cc names at link time; without them rdma-core
// finds no device. A dynamic program takes the drivers of the system. Threads: any. Functions that
// return a vector, a Result or a string allocate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

#include "platform/result.h"

namespace bedplate {

// Registers with rdma-core the drivers that are linked in, and returns their names: "bnxt_re,
// cxgb4, ...". If none is linked in, returns a text that says so. Static text.
const char* verbs_drivers() noexcept;

// A port of a device, with its state and its address.
struct VerbsPort {
  std::string device;  // "rxe0"
  uint8_t port = 0;    // from 1
  bool is_active = false;
  bool is_ethernet = false;  // RoCE: peers are found by GID; else by LID
  uint8_t gid_index = 0;     // of `gid`
  bool has_gid = false;
  ibv_gid gid = {};
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_256;        // as listed; active_mtu() asks again
  uint32_t transfer_bytes_max = 0;  // of one request

  // "rxe0 port 1, ::ffff:10.0.0.1, MTU 1024"; ", down" follows if it is not active.
  std::string text() const;
  bool is_usable() const noexcept { return is_active && (is_ethernet ? has_gid : lid != 0); }
};

// The current index of `port`'s address: an address that was removed and added again may have
// another index. Returns port.gid_index if the address is not found.
uint8_t find_gid_index(ibv_context* context, const VerbsPort& port) noexcept;

// The current MTU of `port`: somebody may have changed its network interface. Returns port.mtu if
// the query fails. Cost: a system call.
ibv_mtu active_mtu(ibv_context* context, const VerbsPort& port) noexcept;
constexpr uint32_t mtu_bytes(ibv_mtu mtu) noexcept { return 128u << mtu; }

// All ports of all devices with a driver. Opens and closes each device, and skips those that do not
// open. Errors (kSystem): no port at all; the error tells if a module or a driver is missing.
Result<std::vector<VerbsPort>> list_verbs_ports();

// Chooses the first usable port that matches `device` and `port` ("", 0: any).
// Errors (kSystem): list_verbs_ports'; no such device or port; the port is down; it has no address.
Result<VerbsPort> choose_verbs_port(const std::string& device, uint8_t port);

}  // namespace bedplate
