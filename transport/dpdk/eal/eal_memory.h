// The memory that EAL takes for itself: its heap, and its tables of the memory that it knows.
//
// EAL cannot be given memory for these: it calls mmap64. A program that links DPDK is linked so
// that its calls of mmap64, munmap and madvise come here first (DPDK_WRAPS in scripts/mk/flags.mk).
// We start EAL with the carve's address as its base, and answer its mappings there with the carve
// itself, which stays mapped as it is. All other calls go to the system unchanged, except that we
// drop a mere hint (no MAP_FIXED) of an address in the pool's range.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate {

// From now on EAL's mappings within `memory` get `memory` itself. It is zeroed, and stays for ever;
// EAL gives none of it back. Threads: one at a time; others may map elsewhere meanwhile.
void open_eal_memory(std::span<std::byte> memory) noexcept;
// Call it once EAL has started: mappings of devices lie elsewhere.
void close_eal_memory() noexcept;

// How much of it EAL has mapped, counted from its front.
size_t eal_memory_used_bytes() noexcept;

}  // namespace bedplate
