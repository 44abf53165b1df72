// PCI devices as sysfs shows them: the driver of each, and the other devices of its IOMMU group.
//
// To give a device to a user-space driver, it is bound to the kernel's driver vfio-pci. A device is
// named by its address, such as "0000:03:00.0": domain, bus, device, function, hexadecimal. `root`
// stands for the machine's root directory; tests have one of their own.
// Threads: any. It allocates: only for boot.
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
  std::string driver;  // empty: no driver has it
  std::string group;   // its IOMMU group's number; empty: none
  // The group was made by the kernel's no-IOMMU mode: no IOMMU protects memory from the device.
  bool is_without_iommu = false;
  // The other devices of its group except bridges: address and driver ("none": no driver has it).
  std::vector<PciDevice> neighbours;
};

// The identity of a device: the numbers that its vendor gave it.
struct PciIdentity {
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint16_t subsystem_vendor = 0;
  uint16_t subsystem_device = 0;
};

bool is_pci_address(std::string_view text) noexcept;

// The addresses of this machine's devices, sorted, without bridges, which our drivers never drive.
std::vector<std::string> list_pci_devices(const std::string& root = "");

// Errors: no such device, with a list of the devices.
Result<PciDevice> look_up_pci_device(const std::string& address, const std::string& root = "");

// Errors: no such device; the kernel does not say.
Result<PciIdentity> read_pci_identity(const std::string& address, const std::string& root = "");

// Whether the kernel has vfio-pci, built in or as a loaded module.
bool has_vfio_driver(const std::string& root = "");

// Reserves the device for vfio-pci: no other driver may bind to it from now on. A driver that has
// it keeps it. Errors: no such device; the kernel refuses.
Result<void> reserve_for_vfio(const std::string& address, const std::string& root = "");

// Unbinds a reserved device from its driver, and binds it to vfio-pci.
// Requires: the module vfio-pci is loaded. Errors: the kernel refuses; no driver has it afterwards.
Result<void> give_to_vfio(const std::string& address, const std::string& root = "");

}  // namespace bedplate
