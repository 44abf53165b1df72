// Says which PCI devices the DPDK drivers of this program support.
//
// DPDK compiles a text of each driver into the program, for its tool dpdk-pmdinfo.py:
// "PMD_INFO_STRING= " and JSON with the identities of the devices. This searches the memory of the
// program and its libraries for the texts. So it needs no table, and works before DPDK has started.
#pragma once

#include <string_view>

#include "transport/vfio/pci_device.h"

namespace bedplate {

// Threads: any. Cost: a search of all read-only memory of the program, some milliseconds: for boot.
bool has_pci_driver(const PciIdentity& identity) noexcept;

// Whether `driver_text`, from "PMD_INFO_STRING= " on, names such a device.
bool is_driver_for(std::string_view driver_text, const PciIdentity& identity) noexcept;

}  // namespace bedplate
