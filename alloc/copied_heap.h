// Makes a heap of private memory consistent in a forked child, which has a copy of it.
//
// The parent's other threads may be in the middle of a heap operation, and they do not exist in the
// child. So fork() waits until none of them holds a lock of the heap, and the child repairs three
// records:
//
//   a page in the "delayed freeing" state    a thread was about to tell the page's owner of a free;
//                                            the owner would wait for that for ever
//   the count of readers of the list of      these readers would stay in the count, and a thread
//   abandoned segments                       that returns a segment waits for a count of 0
//   the list of threads with heaps           only the thread that called fork() still exists
//
// Blocks that those threads had in use stay in use. The free blocks in those threads' pages are
// lost to the child. A child made without atfork handlers (a raw clone, _Fork) is not repaired: as
// with libc's malloc, it must not allocate if the parent has several threads.
#pragma once

namespace bedplate {

// Takes effect for each fork() of this process from now on. Called once, when the heap is made;
// does not allocate.
void keep_copies_whole() noexcept;

}  // namespace bedplate
