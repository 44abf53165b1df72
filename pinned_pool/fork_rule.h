// The meaning of a fork for the heap: decided once, when the heap is made, so before main.
//
//   copy    The heap is private memory: a child gets a copy, as with any other malloc.
//   share   The heap is shared memory, as every segment of the pool: a child sees what its parent
//           does, and takes its own memory elsewhere (alloc/child_heap.h).
//   refuse  It is shared memory, and fork() fails.
//
// Memory that a device or another process uses cannot be private: after a fork a write moves what
// a page holds to another page. So a program shares its heap where code is linked that seals a
// pool, registers it or joins one (shared_segments.h), and has a copy otherwise. And pages of 2 MiB
// or 1 GiB are shared: the copy of one needs a free one, and where there is none the kernel ends
// the child.
#pragma once

#include <cstdint>

// "copy", "share" or "refuse"; nullptr, the default: copy where that can be, else share. Weak: a
// program that defines it itself, extern "C", chooses another. Before it goes BEDPLATE_FORK in the
// environment.
extern "C" const char* const bedplate_fork;

namespace bedplate {

enum class ForkRule : uint8_t { kCopy, kShare, kRefuse };

// A setting that is no such word, or a copy where there can be none, ends the process with exit
// code 2 and a message.
// Threads: the first call comes before there are others, or their own lock. Allocates nothing.
ForkRule fork_rule() noexcept;

// How the program gets a heap that a fork copies: a cure. Static.
const char* way_to_copied_heap() noexcept;

}  // namespace bedplate
