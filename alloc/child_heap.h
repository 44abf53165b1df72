// The heap of a forked child: private memory, so that nothing that the child does reaches its
// parent, until it calls exec or exits.
//
// Simple on purpose: blocks of powers of two from chunks that are mapped as needed and never given
// back, one lock, larger blocks mapped one by one. A parent's block that the child frees is left
// alone; one that it reallocates is copied.
//
// A child that allocates is one that stays. The first of them warns, once for the process, and says
// what to do instead, unless the child knows it (platform/known_child.h). One that only writes what
// its parent allocated goes unnoticed: it may be on its way to exec, and a sealed pool refuses to
// have its memory made read-only.
#pragma once

#include <cstddef>

namespace bedplate {

// `bytes` aligned to `alignment`, a power of two. nullptr with ENOMEM when the system has no more.
// Threads: any of the child's.
void* child_allocate(size_t bytes, size_t alignment) noexcept;

// The same for what libc needs while fork() is under way: it says nothing of the child.
void* child_allocate_in_fork(size_t bytes, size_t alignment) noexcept;

// Frees a block of child_allocate. A block of the parent's, in the pool, stays as it is.
void child_free(void* block) noexcept;

// A block of `bytes` with the content of `block`, which may be the parent's and `old_bytes` long.
void* child_reallocate(void* block, size_t old_bytes, size_t bytes) noexcept;

// How many bytes of a block of child_allocate can be used.
size_t child_usable_bytes(const void* block) noexcept;

}  // namespace bedplate
