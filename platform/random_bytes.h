// Bytes by chance, from the kernel.
#pragma once

#include <cstddef>
#include <span>

#include "platform/result.h"

namespace bedplate {

// Fills `bytes`; at a start of the machine it may wait until the kernel has chance. Requires: 256
// at most, which always come at once (getrandom(2)). Errors: the call is forbidden. Threads: any.
Result<void> draw_bytes(std::span<std::byte> bytes) noexcept;

}  // namespace bedplate
