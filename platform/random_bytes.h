// Random bytes from the kernel.
#pragma once

#include <cstddef>
#include <span>

#include "platform/result.h"

namespace bedplate {

// Fills `bytes` with random bytes. Soon after the machine's start, it may wait until the kernel has
// entropy. Requires: 256 bytes at most, since getrandom(2) returns up to 256 bytes in full. Errors:
// the call is forbidden, or a signal interrupts the wait.
// Threads: any.
Result<void> draw_bytes(std::span<std::byte> bytes) noexcept;

}  // namespace bedplate
