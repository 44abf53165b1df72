// The DPDK drivers linked into this program.
#pragma once

#include <string_view>

namespace bedplate {

// Their names, separated by blanks, without "net_": DRIVERS of scripts/mk/flags.mk. Static.
const char* dpdk_drivers() noexcept;

// Whether the driver `name` (without "net_") is linked in.
bool has_dpdk_driver(std::string_view name) noexcept;

}  // namespace bedplate
