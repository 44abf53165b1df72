// PCI devices as sysfs shows them: the driver of each device, and the others of its IOMMU group.
//
// A user-space driver can use a device that is bound to the kernel's driver vfio-pci. The name of a
// device is its address, such as "0000:03:00.0": domain, bus, device, function, hexadecimal. `root`
// stands for the machine's root directory; tests have one of their own. Errors are of kind kSystem.
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
  // The other devices of its group except bridges; only address, driver and group are set.
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

// Errors: no such device, with a list of the first devices. A bridge is no error.
Result<PciDevice> look_up_pci_device(const std::string& address, const std::string& root = "");

// Errors: no such device; sysfs does not have the numbers.
Result<PciIdentity> read_pci_identity(const std::string& address, const std::string& root = "");

// Whether the kernel has vfio-pci, built in or as a loaded module.
bool has_vfio_driver(const std::string& root = "");

// Reserves the device for vfio-pci: no other driver may bind to it from now on. A driver that has
// it keeps it. Errors: no such device; the kernel refuses.
Result<void> reserve_for_vfio(const std::string& address, const std::string& root = "");

// Unbinds a reserved device from its driver, and binds it to vfio-pci. Does nothing if vfio-pci has
// it already. Errors: no such device; the kernel refuses; afterwards no driver, or another one, has
// it, for example because the module vfio-pci is not loaded.
Result<void> give_to_vfio(const std::string& address, const std::string& root = "");

}  // namespace bedplate
