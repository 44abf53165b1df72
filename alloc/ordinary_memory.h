// The memory of a heap outside the pool. malloc serves from it if the decision
// (interception_decision.h) is for ordinary memory.
//
// It is one private mapping. The first malloc reserves it, and the kernel fills it on first touch.
// So mimalloc works as it does on the pool: it asks the system for nothing and gives nothing back.
// The memory is not shared, not registered and not locked, and a fork copies it.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate {

// Reserves address space outside the pool's range, aligned to kHeapGranularityBytes and zeroed: 64
// GiB, or the largest half, quarter and so on that the system allows. Ends the process with a
// message if the system does not allow even 16 MiB, with which a program reaches main. Called once.
std::span<std::byte> reserve_ordinary_memory() noexcept;

}  // namespace bedplate
