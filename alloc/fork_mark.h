// The fork mark: distinguishes the owner of the heap from a forked child.
//
// If the heap is shared memory (pinned_pool/fork_rule.h), a forked child sees the heap itself, not
// a copy. The child may read its parent's objects, and must not change the heap's own records. The
// mark lies on a page that the kernel wipes in a child (MADV_WIPEONFORK, Linux 4.14), so it detects
// every kind of fork, also a fork without pthread_atfork handlers. It does not detect vfork: its
// child must not allocate.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

struct alignas(4096) ForkMark {
  bool is_owner = false;  // false in a child that shares the heap, and before it exists
};
[[gnu::visibility("hidden")]] extern ForkMark fork_mark;

// Makes this process the owner of a heap of shared memory. Called once, when the heap is made.
// Errors (kSystem): the kernel cannot wipe the mark in a child, or forbids madvise. Allocates
// nothing.
Result<void> mark_heap_owner() noexcept;
// Makes this process the owner of a heap of private memory. A fork copies that heap, and every
// child owns its copy. Called once, when the heap is made.
void mark_heap_private() noexcept;

// Whether this process owns the heap that it sees. Cost: one load.
inline bool owns_heap() noexcept { return __builtin_expect(fork_mark.is_owner, true); }

// Keeps in `memory` whether the message about children (child_heap.h) was logged. Requires: space
// for a bool in memory that children share. Called once, before there are children.
void share_child_notice(void* memory) noexcept;
// Returns true to the first caller among all children, which then logs the message. Called in a
// child of a shared heap's owner.
bool claim_child_notice() noexcept;

// Whether this is a child beside the shared heap of its parent. A child with a copy of the heap
// gets false. (!owns_heap() is also true before the heap exists.)
bool is_forked_child() noexcept;

}  // namespace bedplate
