// Interfaces, addresses and the way out, as [[network]] says: over netlink, since an image has no
// other program to do it. There is no DHCP. Threads: the main thread's.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/boot/configuration.h"
#include "platform/result.h"

namespace bedplate {

// Brings `lo` up, and each of `networks`: MTU, link, address, default route. Waits a little for
// interfaces whose driver is still looking for them.
// Errors: the first step that is refused.
Result<void> bring_networks_up(const std::vector<NetworkSettings>& networks);

// How many bytes the kernel holds that peers of TCP connections have not acknowledged; the end of a
// connection is one. Allocates nothing.
uint64_t unsent_bytes() noexcept;

}  // namespace bedplate
