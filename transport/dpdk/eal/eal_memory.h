// EAL's own memory: its heap, and its tables of the memory that is registered with it.
//
// EAL has no interface to pass in this memory: it calls mmap64. So a program with DPDK is linked
// such that its calls of mmap64, munmap and madvise come here first (DPDK_WRAPS in
// scripts/mk/flags.mk). EAL gets the carve's address as its base address. A mapping there gets the
// carve itself, which stays mapped: munmap and madvise there do nothing. All other calls go to the
// system unchanged, except that a hint (no MAP_FIXED) of an address in the pool's range is dropped.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate {

// From now on EAL's mappings within `memory` get `memory` itself. EAL gives none of it back.
// Requires: `memory` is zeroed, and stays mapped until the process ends. Threads: one at a time;
// others may map elsewhere meanwhile.
void open_eal_memory(std::span<std::byte> memory) noexcept;
// Call it once EAL has started: EAL maps devices elsewhere.
void close_eal_memory() noexcept;

// The bytes from the start of `memory` to the end of EAL's highest mapping in it.
size_t eal_memory_used_bytes() noexcept;

}  // namespace bedplate
