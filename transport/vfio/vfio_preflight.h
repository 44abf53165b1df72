// The obstacles between a PCI device and a driver of ours: one line for each, with its cure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/registration.h"
#include "transport/vfio/pci_device.h"

namespace bedplate {

// Checks which of `devices` cannot be driven, and why: there is none at the address; no IOMMU, or
// one that the kernel does without; another driver has it, or a neighbour; VFIO is not loaded, or
// somebody else drives the device; the IOMMU does not reach the pool's `segments`, which lie from
// `first` to `last`, or takes fewer mappings. Appends to `problems`. It opens groups and closes
// them again.
void check_vfio(std::span<const std::string> devices, std::span<const SegmentSize> segments,
                uint64_t first, uint64_t last, std::vector<Error>* problems);

// The part of it that sysfs answers. `root` as in pci_device.h.
Result<void> check_pci_device(const std::string& address, const std::string& root = "");

}  // namespace bedplate
