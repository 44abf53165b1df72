// The heap of a forked child: private memory, so that the child's allocations do not touch its
// parent, until the child calls exec or exits.
//
// It is simple on purpose. Blocks of up to 256 KiB, header included, are powers of two and come
// from chunks that are never unmapped. A larger block has a mapping of its own. One lock guards the
// chunks. Freeing a parent's block does nothing; reallocating one copies it.
//
// A child that allocates will probably not call exec soon. The first such child logs a message with
// advice, once for the parent and all its children, unless it is a known child
// (platform/known_child.h). Nothing notices a child that only writes its parent's objects: it may
// be about to call exec, and a sealed pool cannot be made read-only.
#pragma once

#include <cstddef>

namespace bedplate {

// A block of `bytes` aligned to `alignment`, a power of two, and at least to 16. Returns nullptr
// with ENOMEM if the system has no more memory. Threads: any of the child's, here and below.
void* child_allocate(size_t bytes, size_t alignment) noexcept;

// As child_allocate, for libc's needs during fork(): it logs no message about the child.
void* child_allocate_in_fork(size_t bytes, size_t alignment) noexcept;

// Frees a block of child_allocate. Leaves a block of the parent, in the pool, as it is. nullptr is
// allowed.
void child_free(void* block) noexcept;

// A new block of `bytes` with the content of `block`, which has `old_bytes` and may be the
// parent's. Frees `block`. Returns nullptr with ENOMEM, and keeps `block`, if the system has no
// more memory. Requires: `block` is not nullptr.
void* child_reallocate(void* block, size_t old_bytes, size_t bytes) noexcept;

// The usable bytes of a block of child_allocate. Requires: `block` is not nullptr.
size_t child_usable_bytes(const void* block) noexcept;

}  // namespace bedplate
