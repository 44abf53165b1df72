// The fork mark: distinguishes the owner of the heap from a forked child.
//
// If the heap is shared memory (pinned_pool/fork_rule.h), a forked child sees the heap itself, not
// a copy. It may read its parent's objects, and must not touch the heap's own records. The mark
// lies on a page that the kernel wipes in a child (MADV_WIPEONFORK, Linux 4.14), so every kind of
// fork is detected, also a fork without pthread_atfork handlers. vfork is not detected: its child
// must not allocate.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

struct alignas(4096) ForkMark {
  bool is_owner = false;  // false in a child, and before the heap exists
};
[[gnu::visibility("hidden")]] extern ForkMark fork_mark;

// Makes this process the owner of a heap of shared memory. Called once, when the heap is made.
// Errors: the kernel cannot wipe the mark in a child. Allocates nothing.
Result<void> mark_heap_owner() noexcept;
// The same for a heap of private memory: a fork copies it, and every child owns its copy.
void mark_heap_private() noexcept;

// Cost: one load.
inline bool owns_heap() noexcept { return __builtin_expect(fork_mark.is_owner, true); }

// Keeps in `memory`, which children share, whether the warning about children was logged. Requires:
// space for a bool, in the heap. Called once, before there are children.
void share_child_notice(void* memory) noexcept;
// The owner and all its children together log one warning about a child that goes on beside a
// shared heap. Returns true to the first caller only, which logs it. Called in a child.
bool claim_child_notice() noexcept;

// Whether this is a child of the owner. (!owns_heap() is also true before the heap exists.)
bool is_forked_child() noexcept;

}  // namespace bedplate
