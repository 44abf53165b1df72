// Says which PCI devices the DPDK drivers of this program support.
//
// DPDK compiles a text of each driver into the program, for its tool dpdk-pmdinfo.py:
// "PMD_INFO_STRING= " and JSON with the identities of the devices. has_pci_driver() searches the
// memory of the program and its libraries for these texts. So it needs no table, and it works
// before EAL has started.
#pragma once

#include <string_view>

#include "transport/vfio/pci_device.h"

namespace bedplate {

// Threads: any. Cost: it reads all read-only memory of the program, which takes some milliseconds.
// Call it only at boot.
bool has_pci_driver(const PciIdentity& identity) noexcept;

// Whether `driver_text` lists this device. False unless the text begins with "PMD_INFO_STRING= ".
bool is_driver_for(std::string_view driver_text, const PciIdentity& identity) noexcept;

}  // namespace bedplate
