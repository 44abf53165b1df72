// Makes the heap of a program shared memory if devices or other processes use it.
//
// A heap is made before main, of one kind of memory, for good. So the linker decides: code that
// seals a pool, registers it with a device or maps another process's segment calls this function,
// and a program that links this function has a shared heap (fork_rule.h).
#pragma once

namespace bedplate {

class PinnedPool;

// Asserts that no segment is private.
void require_shared_segments(const PinnedPool& pool) noexcept;

}  // namespace bedplate
