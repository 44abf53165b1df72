// Keeps libc in a forked child from changing records that libc in the parent uses.
//
// libc allocates its records with malloc, so they lie in the pool, which a child shares. fork()
// cleans them up in the child as if they were a copy. This writes two of them:
//
//   open streams     the child unlocks each, also streams that threads of the parent have locked,
//                    and follows links that the parent frees meanwhile. So a child's list begins
//                    behind the streams in the pool, and the buffered data of its standard streams
//                    moves to its own memory.
//   thread-specific  the child clears the values of all threads but its own. libc keeps the first
//   values           32 keys outside the heap. For more keys there is only a warning.
#pragma once

namespace bedplate {

// Takes effect for each fork() of this process from now on. Called once, when the heap is made;
// does not allocate.
void guard_libc_from_children() noexcept;

}  // namespace bedplate
