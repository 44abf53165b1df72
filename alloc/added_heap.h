// More heap while a program runs: a segment of its own in the pool, of whatever pages.
//
// For programs without an appliance. An appliance's pool is planned ([pool] bytes), and a process
// that joins one is given its heap by the owner (heap_bytes of its [[process]]): both are refused.
// Before main, use BEDPLATE_BOOT_BYTES and BEDPLATE_BOOT_PAGE_BYTES (pinned_pool/boot_segment.h).
#pragma once

#include <cstdint>

#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// The owner of such segments.
inline constexpr char kAddedHeapOwner[] = "heap:added";

// Takes `bytes`, rounded up to whole pages and to 4 MiB, and gives them to the heap for good: for
// malloc if libbedplate-malloc.a is linked, for pool_allocate (pool_heap.h) in any case. A device
// with which the pool was registered before does not know them. Pages of 4 KiB beyond the limit of
// locked memory are not locked, like those of segment 0. Under a sanitizer the heap does not use
// them.
// Threads: any, also beside others that allocate.
// Errors: the pool is sealed, an appliance's, or full; malloc hands out ordinary memory; the
// system's, with what cures it (kSystem); nothing is taken then. 0 bytes, or hugepages where a fork
// copies the heap (kConfiguration).
Result<void> add_heap(uint64_t bytes, PageSize page);

// Refuses if this program has added to its heap: an appliance cannot boot beside an added segment,
// and a process cannot join a pool. `doing` and `instead`: the attempt and the cure that the error
// names.
// Threads: any. Errors: there is such a segment.
Result<void> refuse_added_heap(const char* doing, const char* instead) noexcept;

}  // namespace bedplate
