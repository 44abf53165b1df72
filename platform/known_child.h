// Marks a forked child that knows what it may do with its parent's memory.
//
// The runtime's own children inspect something or call exec, and write nothing of their parent's:
// they do not log the advice for children that go on running (alloc/child_heap.h).
#pragma once

namespace bedplate {

// Set by the child itself; its parent's stays false.
inline constinit bool is_known_child = false;

}  // namespace bedplate
