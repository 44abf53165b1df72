// The heap of a forked child: private memory, so that the child's allocations do not touch its
// parent, until the child calls exec or exits.
//
// Simple on purpose: blocks of powers of two from chunks that are mapped as needed and never
// unmapped, one lock, larger blocks mapped one by one. Freeing a parent's block does nothing;
// reallocating one copies it.
//
// A child that allocates will not call exec soon. The first such child logs a warning, once for the
// process, with advice, unless it is a known child (platform/known_child.h). A child that only
// writes its parent's objects is not noticed: it may be about to call exec, and a sealed pool
// cannot be made read-only.
#pragma once

#include <cstddef>

namespace bedplate {

// A block of `bytes` aligned to `alignment`, a power of two. nullptr with ENOMEM if the system has
// no more. Threads: any of the child's.
void* child_allocate(size_t bytes, size_t alignment) noexcept;

// The same for libc's needs during fork(): it logs no warning about the child.
void* child_allocate_in_fork(size_t bytes, size_t alignment) noexcept;

// Frees a block of child_allocate. Leaves a block of the parent, in the pool, as it is.
void child_free(void* block) noexcept;

// A block of `bytes` with the content of `block`, which may be the parent's and `old_bytes` long.
void* child_reallocate(void* block, size_t old_bytes, size_t bytes) noexcept;

// The usable bytes of a block of child_allocate.
size_t child_usable_bytes(const void* block) noexcept;

}  // namespace bedplate
