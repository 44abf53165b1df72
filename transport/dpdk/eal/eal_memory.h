// EAL's own memory: its heap, and its tables of the memory that is registered with it.
//
// EAL has no interface to pass in this memory: it calls mmap64. So a program with DPDK is linked
// such that its calls of mmap64, munmap and madvise come here first (DPDK_WRAPS in
// scripts/mk/flags.mk). EAL gets the carve's address as its base address. A mapping there gets the
// carve itself, which stays mapped. All other calls go to the system unchanged, except that a hint
// (no MAP_FIXED) of an address in the pool's range is dropped.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate {

// From now on EAL's mappings within `memory` get `memory` itself. It is zeroed, and stays mapped
// for ever; EAL gives none of it back. Threads: one at a time; others may map elsewhere meanwhile.
void open_eal_memory(std::span<std::byte> memory) noexcept;
// Call it once EAL has started: EAL maps devices elsewhere.
void close_eal_memory() noexcept;

// How much of it EAL has mapped, counted from its start.
size_t eal_memory_used_bytes() noexcept;

}  // namespace bedplate
