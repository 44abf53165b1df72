// What a program must have where others are to use its heap's pages: a heap of shared memory.
//
// A heap is made before main, and what it is made of stays. So it is decided by what is linked:
// whoever seals a pool, registers it with a device or maps what another process made calls this
// function, and where a program has it the heap is shared (fork_rule.h).
#pragma once

namespace bedplate {

class PinnedPool;

// Requires: no segment is private.
void require_shared_segments(const PinnedPool& pool) noexcept;

}  // namespace bedplate
