// Random bytes from the kernel.
#pragma once

#include <cstddef>
#include <span>

#include "platform/result.h"

namespace bedplate {

// Fills `bytes`; soon after the machine's start it may wait until the kernel has entropy. Requires:
// 256 bytes at most, which getrandom(2) always returns in full. Errors: the call is forbidden.
// Threads: any.
Result<void> draw_bytes(std::span<std::byte> bytes) noexcept;

}  // namespace bedplate
