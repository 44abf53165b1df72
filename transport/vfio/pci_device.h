// PCI devices as sysfs shows them: the driver of each, and the others in its IOMMU group.
//
// A device is given to a user-space driver by binding it to the kernel's driver vfio-pci. It is
// known by its address, as in "0000:03:00.0": domain, bus, device, function, hexadecimal.
// `root` stands for the machine's root directory; tests have one of their own.
// Threads: any. It allocates: for boot alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/result.h"

namespace bedplate {

inline constexpr char kVfioDriver[] = "vfio-pci";

struct PciDevice {
  std::string address;
  std::string driver;  // empty: none has it
  std::string group;   // its IOMMU group's number; empty: it has none
  // Its group was made up by the kernel's no-IOMMU mode: no IOMMU stands before it.
  bool is_without_iommu = false;
  // The others of its group, but for bridges: address and driver ("none": no driver has it).
  std::vector<PciDevice> neighbours;
};

// The identity of a device: the numbers that its maker gave it.
struct PciIdentity {
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint16_t subsystem_vendor = 0;
  uint16_t subsystem_device = 0;
};

bool is_pci_address(std::string_view text) noexcept;

// The devices of this machine but for bridges, which no driver of ours drives, sorted.
std::vector<std::string> list_pci_devices(const std::string& root = "");

// Errors: there is no such device; the devices that there are.
Result<PciDevice> look_up_pci_device(const std::string& address, const std::string& root = "");

// Errors: there is no such device; the kernel does not say.
Result<PciIdentity> read_pci_identity(const std::string& address, const std::string& root = "");

// Whether the kernel has vfio-pci, as a module that is loaded or a part of its own.
bool has_vfio_driver(const std::string& root = "");

// Reserves the device for vfio-pci: no other driver may take it from now on; one that has it keeps
// it. Errors: there is no such device; the kernel refuses.
Result<void> reserve_for_vfio(const std::string& address, const std::string& root = "");

// Takes a reserved device from the driver that has it, and has vfio-pci take it.
// Requires: the module vfio-pci is loaded. Errors: the kernel refuses, or no driver has it then.
Result<void> give_to_vfio(const std::string& address, const std::string& root = "");

}  // namespace bedplate
