// Which devices of PCI the drivers of DPDK that this program has are for.
//
// DPDK leaves a text of each driver in the program, for its tool dpdk-pmdinfo.py:
// "PMD_INFO_STRING= " and JSON with the identities of the devices. These texts are looked for in
// the memory of the program and its libraries: nothing of DPDK need run for it, and there is no
// table of ours.
#pragma once

#include <string_view>

#include "transport/vfio/pci_device.h"

namespace bedplate {

// Threads: any. Cost: a look at all that the program cannot write, some milliseconds: for boot.
bool has_pci_driver(const PciIdentity& identity) noexcept;

// Whether a driver with this text, from "PMD_INFO_STRING= " on, is for such a device.
bool is_driver_for(std::string_view driver_text, const PciIdentity& identity) noexcept;

}  // namespace bedplate
