// Sets up [[network]]: interfaces, addresses and the default route, over netlink, because an image
// has no other program for it. It has no DHCP. Threads: the main thread.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/init/image_settings.h"
#include "platform/result.h"

namespace bedplate {

// Brings `lo` up, and each of `networks`: MTU, link, address, default route. Waits at most 10 s for
// each interface, since its driver may still probe. Errors: the first step that fails.
Result<void> bring_networks_up(const std::vector<NetworkSettings>& networks);

// The bytes in the kernel that peers of TCP connections have not acknowledged; a FIN counts as one.
// Allocates nothing.
uint64_t unsent_bytes() noexcept;

}  // namespace bedplate
