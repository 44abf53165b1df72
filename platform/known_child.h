// Marks a forked child that knows what it may do with its parent's memory.
//
// The runtime's own children inspect something, call exec or wait for their parent, and write
// nothing of their parent's memory: they do not log the advice for children that go on running
// (alloc/child_heap.h).
#pragma once

namespace bedplate {

// The child itself sets it; in its parent it stays false.
inline constinit bool is_known_child = false;

}  // namespace bedplate
