// Keeps libc in a forked child off the records that libc in the parent uses.
//
// libc takes its records with malloc, so they lie in the pool, which a child shares; and fork()
// tidies them up in the child as if they were a copy. Two of them are written by that:
//
//   open streams     the child unlocks each, also those that threads of the parent have locked, and
//                    follows links that the parent frees meanwhile. So a child's list of streams
//                    begins behind those that lie in the pool, and what its standard streams have
//                    buffered is moved to its own memory.
//   thread-specific  the child empties those of all threads but its own. libc keeps the first 32
//   values           keys elsewhere. With more, nothing can be done but to warn.
#pragma once

namespace bedplate {

// From now on, for each fork() of this process. Called once, when the heap is made; does not
// allocate.
void guard_libc_from_children() noexcept;

}  // namespace bedplate
