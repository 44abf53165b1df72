// The memory that EAL takes for itself: its heap, and the tables of what memory there is.
//
// EAL knows no way to be given memory for these: it calls mmap64. A program that links DPDK is
// linked so that mmap64, munmap and madvise come here first (DPDK_WRAPS in scripts/mk/flags.mk).
// While EAL starts it is told to place all of it from the address of a carve on, and what it maps
// there is the carve itself, which stays mapped as it is. All else goes to the system as it came,
// but that a mere wish for an address in the pool's range is no reason to map anything there.
//
// Tested by tests/transport/dpdk/eal/eal_test.cc.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate {

// From now on what EAL maps within `memory` is `memory`. It is zeroed, and stays for ever; EAL
// gives none of it back. Threads: one at a time; others may map elsewhere meanwhile.
void open_eal_memory(std::span<std::byte> memory) noexcept;
// EAL has started: what devices map lies elsewhere.
void close_eal_memory() noexcept;

// How much of it EAL has mapped: from its front.
size_t eal_memory_used_bytes() noexcept;

}  // namespace bedplate
