// Keeps libc in a forked child from changing records that libc in the parent uses.
//
// libc allocates its records with malloc, so they lie in the pool, which a child shares. fork()
// cleans the records up in the child as if they were a copy. It writes to two kinds of record:
//
//   open streams     fork() unlocks each stream, also streams that threads of the parent have
//                    locked, and follows links that the parent frees meanwhile. So a child's list
//                    of streams begins after the last one in the pool, and the buffered data of its
//                    standard streams moves to its own memory. fflush(nullptr) and exit() in the
//                    child skip that last stream and those before it.
//   thread-specific  fork() clears the values of all threads but the child's own. libc keeps the
//   values           first 32 keys outside the heap. For more keys there is only a warning, once.
#pragma once

namespace bedplate {

// Takes effect for each fork() of this process from now on. Called once, when the heap is made;
// does not allocate.
void guard_libc_from_children() noexcept;

}  // namespace bedplate
