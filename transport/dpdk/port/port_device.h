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
  // kPci: a device that VFIO hands over, or a Mellanox device that its kernel driver shares. kRing:
  // two ports with the same `argument` send to each other. kNull: sent frames are dropped, and
  // received frames have arbitrary contents.
  enum class Kind : uint8_t { kPci, kAfPacket, kAfXdp, kTap, kMemif, kRing, kNull };

  Kind kind = Kind::kNull;
  std::string argument;  // address, interface, path or name; empty with kNull

  // DPDK's driver for this kind; "" with kPci, where it depends on the device.
  const char* driver() const noexcept;
  // Whether it uses a kernel interface, which `argument` names.
  bool is_kernel_interface() const noexcept {
    return kind == Kind::kAfPacket || kind == Kind::kAfXdp || kind == Kind::kTap;
  }
  // Whether it maps its peer's memory when the peer connects: the one exception to "nothing is
  // mapped after the seal".
  bool maps_peer_memory() const noexcept { return kind == Kind::kMemif; }
  // Whether the device has a MAC address of its own; otherwise PortOptions::mac is used.
  bool has_address() const noexcept {
    return kind == Kind::kPci || kind == Kind::kAfPacket || kind == Kind::kAfXdp;
  }
  std::string text() const;
};

// Errors (kConfiguration): the mistake in `text`, and the form expected.
Result<PortDevice> parse_port_device(std::string_view text);

// Appends each obstacle to using `device` on this machine, with its cure: the driver is not linked
// in, the kernel interface does not exist or is down, the device may not be opened, or the folder
// of a memif may not be entered, or not be written to by its server. The runtime itself checks
// whether a PCI device exists and which driver has it (ServicePlan::vfio_device). Leaves the device
// and the system as they were. `port`: the port's name in the configuration, for the messages.
// `root` as in vfio/pci_device.h.
void look_at_port_device(const std::string& port, const PortDevice& device, bool is_memif_server,
                         std::vector<Error>* problems, const std::string& root = "");

}  // namespace bedplate
