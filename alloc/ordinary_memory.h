// The memory of a heap outside the pool: malloc serves from it if the decision
// (interception_decision.h) is "no".
//
// One private mapping, reserved at the first malloc and filled by the kernel as it is touched, so
// that mimalloc works just as it does on the pool: it asks the system for nothing and gives nothing
// back. It is ordinary in every way: not shared, copied on fork, not registered, not locked.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate {

// Address space outside the pool's range, aligned to kHeapGranularityBytes and zeroed: 64 GiB,
// or less where a limit says so. Ends the process with a message when there is not even enough for
// a program to get to its main. Call it once.
std::span<std::byte> reserve_ordinary_memory() noexcept;

}  // namespace bedplate
