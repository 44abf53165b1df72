// The device of a port, as the configuration names it: "0000:03:00.0", "af_packet:eth0",
// "af_xdp:eth0", "tap:NAME", "memif:/PATH", "ring:NAME" or "null".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/result.h"

namespace bedplate {

struct PortDevice {
  // kPci: a device that VFIO hands over, or one of Mellanox that its kernel driver shares. kRing:
  // two ports of one name send to one another. kNull: sent frames are dropped, and received frames
  // make no sense.
  enum class Kind : uint8_t { kPci, kAfPacket, kAfXdp, kTap, kMemif, kRing, kNull };

  Kind kind = Kind::kNull;
  std::string argument;  // address, interface, path or name; empty with kNull

  // DPDK's driver for this kind; "" with kPci, where it depends on the device.
  const char* driver() const noexcept;
  // Whether an interface of the kernel carries it, which `argument` names.
  bool is_kernel_interface() const noexcept {
    return kind == Kind::kAfPacket || kind == Kind::kAfXdp || kind == Kind::kTap;
  }
  // Whether it maps its peer's memory when the peer connects: the one exception to "nothing is
  // mapped after the seal".
  bool maps_peer_memory() const noexcept { return kind == Kind::kMemif; }
  // Whether its address is the device's; else it is PortOptions::mac.
  bool has_address() const noexcept {
    return kind == Kind::kPci || kind == Kind::kAfPacket || kind == Kind::kAfXdp;
  }
  std::string text() const;
};

// Errors (kConfiguration): the mistake in `text`, and the form expected.
Result<PortDevice> parse_port_device(std::string_view text);

// Appends each obstacle to using `device` on this machine, with its cure: its driver is not linked
// in, there is none, the kernel has it, it may not be opened. Takes nothing and leaves nothing
// behind. `port`: of the configuration, for the messages. `root` as in vfio/pci_device.h.
void look_at_port_device(const std::string& port, const PortDevice& device,
                         std::vector<Error>* problems, const std::string& root = "");

}  // namespace bedplate
