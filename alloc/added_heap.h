// Adds to the heap while a program runs: a segment of its own in the pool, with any page size.
//
// For programs without an appliance. An appliance's pool is planned ([pool] bytes), and a process
// that joins one gets its heap from the owner (heap_bytes of its [[process]]): both are refused
// here. Before main, use BEDPLATE_BOOT_BYTES and BEDPLATE_BOOT_PAGE_BYTES
// (pinned_pool/boot_segment.h).
#pragma once

#include <cstdint>

#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// The owner of such segments.
inline constexpr char kAddedHeapOwner[] = "heap:added";

// Takes `bytes`, rounded up to whole pages and to 4 MiB, and gives them to the heap for good: to
// malloc if libbedplate-malloc.a is linked, to pool_allocate (pool_heap.h) in any case. Devices
// with which the pool was registered before do not know the new memory. Pages of 4 KiB beyond the
// limit of locked memory are not locked, as in segment 0. Under a sanitizer the heap does not use
// the memory.
// Threads: any, also while others allocate.
// Errors: the pool is sealed, belongs to an appliance, or is full; malloc hands out ordinary
// memory; the system's error, with its cure (kSystem); nothing is taken then. 0 bytes, or hugepages
// where a fork copies the heap (kConfiguration).
Result<void> add_heap(uint64_t bytes, PageSize page);

// Refuses if this program has added to its heap: then it cannot boot an appliance or join a pool.
// `doing` and `instead`: the attempt and the cure for the error.
// Threads: any. Errors: such a segment exists.
Result<void> refuse_added_heap(const char* doing, const char* instead) noexcept;

}  // namespace bedplate
