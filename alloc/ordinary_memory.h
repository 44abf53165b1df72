// The memory of a heap outside the pool: malloc serves from it if the decision
// (interception_decision.h) is "no".
//
// One private mapping, reserved at the first malloc and filled by the kernel on first touch. So
// mimalloc works as it does on the pool: it asks the system for nothing and gives nothing back. The
// memory is not shared, not registered and not locked, and a fork copies it.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate {

// Reserves address space outside the pool's range, aligned to kHeapGranularityBytes and zeroed: 64
// GiB, or less under a limit. Ends the process with a message if there is not even enough for a
// program to reach main. Call it once.
std::span<std::byte> reserve_ordinary_memory() noexcept;

}  // namespace bedplate
