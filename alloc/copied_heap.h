// Keeps a heap of private memory whole in a forked child, which has a copy of it.
//
// The copy is as the parent's other threads left it, and they are not there to finish what they
// were at. So no fork() happens while one of them holds a lock of the heap's; and mimalloc's own
// records, which need none, are put right in the child:
//
//   a page whose owner is told just then     nobody would end that, and the owner waits for it
//   that another thread frees a block
//   readers of the list of segments that     nobody would count them out, and who gives a segment
//   ended threads left                       back waits for that
//   the list of threads with heaps           theirs are no more: only the one that forked is
//
// Blocks that those threads had in use stay in use; their free blocks, in pages with blocks in use,
// are lost to the child. Nothing is done for children that call no handlers (a raw clone, _Fork):
// as with libc's malloc, these must not allocate where the parent has several threads.
#pragma once

namespace bedplate {

// From now on, for each fork() of this process. Called once, when the heap is made; does not
// allocate.
void keep_copies_whole() noexcept;

}  // namespace bedplate
