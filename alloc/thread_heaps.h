// The heaps of a thread: one for each owner that it allocates for, and what they keep while it is
// idle.
//
// mimalloc gives each thread heaps of its own. Blocks that other threads free while a thread sleeps
// wait in its heaps, and so do the empty pages that it keeps for its next request: a thread that
// sleeps for long can withhold any amount of memory that nobody uses. So when a request cannot be
// met, the thread that was refused empties the heaps of the others, as mimalloc does when a thread
// ends: empty pages become free, pages in use are abandoned, for anybody to take over.
//
// How that is safe without a lock in malloc and free: a thread's fast paths look at two
// thread-local words, its default heap and its identity (which tells free whether a block is the
// thread's own). Both are first put back to what they are in a thread that never allocated: from
// then on its malloc ends in heap_of_thread, which waits, and its free takes the way of another
// thread's, which is safe at any time. If then the kernel says that the thread is blocked in a
// system call, it is not in the middle of malloc or free, and will not be: these make no system
// call, but where they say so (InsideHeap). A thread that is running gets its words back and is
// left alone.
//
// Only the kernel's word decides (/proc/self/task/TID): where it cannot be had, nothing is taken.
#pragma once

#include <cstdint>

struct mi_heap_s;

namespace bedplate {

// Equal to the id of no thread.
inline constexpr uintptr_t kNoIdentity = 1;
// The calling thread's id, as mimalloc writes it into the thread's segments, while the thread has
// its heaps, else kNoIdentity.
extern __thread uintptr_t heap_identity;

// Around what makes a system call in the midst of malloc: nobody empties the thread's heaps.
class InsideHeap {
 public:
  InsideHeap() noexcept;
  ~InsideHeap();
  InsideHeap(const InsideHeap&) = delete;
  InsideHeap& operator=(const InsideHeap&) = delete;
};
bool is_inside_heap() noexcept;

// While it lasts `heap` takes in nothing that threads left when they ended. Otherwise mimalloc's
// debug build, and a forced collection, would have the main thread's heap take in all of it.
class WithoutReclaim {
 public:
  explicit WithoutReclaim(mi_heap_s& heap) noexcept;
  ~WithoutReclaim();
  WithoutReclaim(const WithoutReclaim&) = delete;
  WithoutReclaim& operator=(const WithoutReclaim&) = delete;

 private:
  mi_heap_s& heap_;
  const bool before_;
};

// The calling thread's default heap. Creates it, or takes back those that were emptied while the
// thread slept. Returns mimalloc's empty heap when there is no memory for one.
mi_heap_s* heap_of_thread() noexcept;

// Makes the heap of `owner` (an index) the calling thread's default; creates it at the first call.
// Returns false, and changes nothing, when there is no memory for one.
bool choose_heap_of_owner(uint32_t owner) noexcept;

// The owner whose reserve serves what the calling thread allocates now for `owner`: the runtime
// while the thread makes a heap, else `owner` itself.
uint32_t whose_reserve(uint32_t owner) noexcept;

// Called before a heap of the calling thread takes a page: from the first time on the heaps may be
// emptied when the thread is idle. Returns the heap's owner. Cost: a few comparisons.
uint32_t heap_of_thread_in_use(mi_heap_s* heap) noexcept;

// The thread ends: nobody empties its heaps from now on.
void heap_of_thread_done() noexcept;

// Gives the empty pages of the calling thread's heaps back to the pool's heap: the thread will need
// none for long (transport/loop/event_loop.h). Cost: a look at each page that it has.
void return_empty_pages() noexcept;

// Empties the heaps of all idle threads but the caller's that have memory of `owner`, or of any.
// Threads: any, in the midst of malloc. Cost: some ten microseconds for each thread with memory.
inline constexpr uint32_t kEveryOwner = ~uint32_t{0};
void empty_idle_heaps(uint32_t owner) noexcept;

// Around a fork() (copied_heap.h): nobody is in the midst of the others, nor in a handler of a
// signal.
void hold_thread_heaps() noexcept;
void release_thread_heaps() noexcept;
// In the child, between the two: of all threads only the calling one is there.
void forget_other_threads() noexcept;

}  // namespace bedplate
