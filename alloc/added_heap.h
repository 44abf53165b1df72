// Adds memory to the heap while a program runs. The memory is a new segment of the pool.
//
// Only programs without an appliance use this. add_heap() refuses two others: an appliance plans
// its pool ([pool] bytes), and a process that joins a pool gets its heap from the pool's owner
// (heap_bytes of its [[process]]). BEDPLATE_BOOT_BYTES and BEDPLATE_BOOT_PAGE_BYTES size the heap
// before main (pinned_pool/boot_segment.h).
#pragma once

#include <cstdint>

#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// The owner name of such segments.
inline constexpr char kAddedHeapOwner[] = "heap:added";

// Takes `bytes`, rounded up to whole pages and to 4 MiB, and gives them to the heap for good.
// pool_allocate (pool_heap.h) uses them, and so does malloc if libbedplate-malloc.a is linked. A
// device that registered the pool earlier does not know the new memory. Pages of 4 KiB beyond the
// limit of locked memory are not locked, as in segment 0. Under a sanitizer the heap does not use
// the memory.
// Threads: any, also while others allocate.
// Errors (kSystem): the pool is sealed, belongs to an appliance, or is full; malloc hands out
// ordinary memory; the system's error, with its cure. Errors (kConfiguration): 0 bytes, more bytes
// than the pool can address, or hugepages where a fork copies the heap. An error takes no memory,
// with one exception (kSystem): if the heap's tables do not fit into segment 0, the new segment
// stays in the pool unused.
Result<void> add_heap(uint64_t bytes, PageSize page);

// Checks that this program has not added to its heap: otherwise it cannot boot an appliance or join
// a pool. `doing` is the attempt and `instead` the cure in the error.
// Threads: any. Errors (kSystem): the program has added to its heap.
Result<void> refuse_added_heap(const char* doing, const char* instead) noexcept;

}  // namespace bedplate
