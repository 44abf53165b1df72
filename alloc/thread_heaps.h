// The heaps of a thread, one for each owner that it allocates for, and the recovery of memory that
// idle threads withhold.
//
// mimalloc gives each thread heaps of its own. A sleeping thread's heaps keep blocks that other
// threads have freed, and empty pages for its next request: a long sleep can withhold any amount of
// unused memory. So when a request cannot be met, the refused thread empties the heaps of the
// others, as mimalloc does when a thread ends: empty pages become free, and pages in use are
// abandoned, so that any thread can take them over.
//
// This is safe without a lock in malloc and free, for the following reason. The fast paths of a
// thread read two thread-local words: its default heap, and its identity (by which free knows
// whether a block is the thread's own). The emptying thread first resets both words to their values
// in a thread that never allocated. From then on malloc in the other thread ends in heap_of_thread,
// which waits for the lock, and its free takes the path for another thread's block, which is always
// safe. Then the emptying thread asks the kernel: if the other thread is blocked in a system call,
// it is not inside malloc or free, because these make no system call except under InsideHeap. A
// running thread gets its words back and keeps its heaps.
//
// Only the kernel's answer decides (/proc/self/task/TID). Without an answer the other thread keeps
// its heaps. It also keeps them while it may be in a signal handler, which may have interrupted
// malloc.
#pragma once

#include <cstdint>

struct mi_heap_s;

namespace bedplate {

// An id that no thread has.
inline constexpr uintptr_t kNoIdentity = 1;
// The calling thread's id, as mimalloc writes it into the thread's segments. It is kNoIdentity
// while the thread's heaps are taken away, and before and after it has any.
extern __thread uintptr_t heap_identity;

// Surrounds system calls inside malloc: no other thread empties this thread's heaps meanwhile. It
// nests.
class InsideHeap {
 public:
  InsideHeap() noexcept;
  ~InsideHeap();
  InsideHeap(const InsideHeap&) = delete;
  InsideHeap& operator=(const InsideHeap&) = delete;
};
// Whether the calling thread has an InsideHeap.
bool is_inside_heap() noexcept;

// During its life `heap` takes over no segments that ended threads abandoned. Otherwise mimalloc's
// debug build, and a forced collection, would make the main thread's heap take over all of them.
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

// The calling thread's default heap. Creates it, or restores heaps that were emptied while the
// thread slept. Returns mimalloc's empty heap if there is no memory for one.
mi_heap_s* heap_of_thread() noexcept;

// Makes the heap of `owner` (an index) the calling thread's default; creates it at the first call.
// Returns false, and changes nothing, if there is no memory for one. In a forked child beside a
// shared heap it returns true and changes nothing.
bool choose_heap_of_owner(uint32_t owner) noexcept;

// The owner whose reserve serves the calling thread's present allocation for `owner`: the runtime
// while the thread makes a heap, else `owner` itself.
uint32_t whose_reserve(uint32_t owner) noexcept;

// Called before a heap of the calling thread takes a page. The first call registers the thread, so
// that its heaps may be emptied while it is idle. Returns the index of the heap's owner. Cost: a
// few comparisons.
uint32_t heap_of_thread_in_use(mi_heap_s* heap) noexcept;

// The thread ends: from now on no other thread empties its heaps.
void heap_of_thread_done() noexcept;

// Gives the empty pages of the calling thread's heaps back to the pool's heap. A thread calls it
// before a long idle time (transport/loop/loop_rounds.h). Does nothing in a forked child beside a
// shared heap. Cost: a look at each page that the thread has.
void return_empty_pages() noexcept;

// Empties all heaps of the other idle threads that have memory of `owner`, or of any owner. Does
// nothing if /proc belongs to another PID namespace, or if a signal handler runs with its own
// signal unblocked (SA_NODEFER). Threads: any, inside malloc. Cost: some ten microseconds for each
// thread with memory.
inline constexpr uint32_t kEveryOwner = ~uint32_t{0};
void empty_idle_heaps(uint32_t owner) noexcept;

// Held around a fork() (copied_heap.h): no other thread is inside these functions, and no signal
// handler runs on this one.
void hold_thread_heaps() noexcept;
void release_thread_heaps() noexcept;
// Called in the child, between the two: only the calling thread exists there.
void forget_other_threads() noexcept;

}  // namespace bedplate
