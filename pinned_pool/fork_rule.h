// The rule for the heap at a fork. It is decided once, when the heap is made, before main.
//
//   copy    The heap is private memory: a child gets a copy, as with any other malloc.
//   share   The heap is shared memory, like every segment of the pool: a child sees its parent's
//           writes, and takes its own memory elsewhere (alloc/child_heap.h).
//   refuse  The heap is shared memory, and fork() fails.
//
// Memory that a device or another process uses cannot be private: after a fork, a write moves the
// page's content to another page. So, by default, a program shares its heap if it links code that
// seals a pool, registers it or joins one (shared_segments.h); else its heap is copied. Heaps in
// pages of 2 MiB or 1 GiB are always shared memory: a copy of such a page needs a free page, and
// without one the kernel ends the child.
#pragma once

#include <cstdint>

// "copy", "share" or "refuse". nullptr, the default, means copy if possible, else share. Weak
// symbol: a program overrides it with its own extern "C" definition. BEDPLATE_FORK in the
// environment overrides the program's definition.
extern "C" const char* const bedplate_fork;

namespace bedplate {

enum class ForkRule : uint8_t { kCopy, kShare, kRefuse };

// The rule in force. An unknown word, or "copy" where the heap cannot be copied, ends the process
// with exit code 2 and a message.
// Threads: the first call comes before other threads exist, or under the caller's lock. Allocates
// nothing.
ForkRule fork_rule() noexcept;

// The cure for a program that needs a heap copied by fork. Static text.
const char* cure_for_uncopied_heap() noexcept;

}  // namespace bedplate
