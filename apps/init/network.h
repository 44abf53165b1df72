// The setup of [[network]]: interfaces, addresses and the default route, over netlink, since an
// image has no other program to do it. There is no DHCP. Threads: the main thread's.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/init/image_settings.h"
#include "platform/result.h"

namespace bedplate {

// Brings `lo` up, and each of `networks`: MTU, link, address, default route. Waits a little for
// interfaces whose driver is still looking for them.
// Errors: the first step that is refused.
Result<void> bring_networks_up(const std::vector<NetworkSettings>& networks);

// The bytes that the kernel holds and peers of TCP connections have not acknowledged; the end of a
// connection counts as one. Allocates nothing.
uint64_t unsent_bytes() noexcept;

}  // namespace bedplate
