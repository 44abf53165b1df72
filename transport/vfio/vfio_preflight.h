// Finds the obstacles between PCI devices and our drivers. Each error has its cure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/registration.h"
#include "transport/vfio/pci_device.h"

namespace bedplate {

// Checks that our drivers can drive each of `devices`. Appends the first obstacle of each device to
// `problems`, equal ones only once: no device at the address; no IOMMU, or an IOMMU that the kernel
// does not use; another driver has the device or a neighbour; VFIO is not loaded; another program
// drives the device; the IOMMU does not reach the pool's `segments`, which are between the
// addresses `first` and `last`, or takes too few mappings. Opens groups and closes them again, so
// no device of these groups may be in use. Allocates.
void check_vfio(std::span<const std::string> devices, std::span<const SegmentSize> segments,
                uint64_t first, uint64_t last, std::vector<Error>* problems);

// Makes the checks of check_vfio() that need only sysfs. Errors (kSystem): the first obstacle.
// `root` as in pci_device.h.
Result<void> check_pci_device(const std::string& address, const std::string& root = "");

}  // namespace bedplate
