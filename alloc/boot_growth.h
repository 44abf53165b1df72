// Lets segment 0 grow before there is a plan.
//
// A program reads and plans its configuration in segment 0, and reads the answers of a running
// appliance there. Both may be of any size, so the commands of a program let segment 0 grow in
// place whenever it is exhausted. `run` ends the growth: segment 0 then gets the planned size
// (apps/boot/boot_plan.h). In programs without commands segment 0 keeps its size from link time or
// the environment; they can add to the heap (added_heap.h).
//
// Threads: the main thread, before it starts others. Does nothing if the heap does not lie in the
// pool.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

// More than any configuration takes: code that needs more has a defect.
inline constexpr uint64_t kBootGrownBytesMax = kGiB;

// From here on segment 0 grows when it is exhausted, up to kBootGrownBytesMax. A `new` that still
// fails ends the process, with the message about exhaustion (exhaustion.h) as its last line: no
// code of the runtime catches exceptions.
void let_boot_heap_grow() noexcept;
// From here on segment 0 does not grow, and `new` throws.
void end_boot_growth() noexcept;

// Makes segment 0 as large as planned, at once; it grows no more. Requires: a multiple of
// kBootBytesGranularity and of its pages; it is the only segment.
// Errors (kSystem): it is larger already; the system has no more memory, with the reason.
Result<void> fix_boot_heap(uint64_t bytes);

// Called by the exhausted heap: grows segment 0 for a block of `bytes`. Returns false if it cannot.
bool grow_boot_heap(uint64_t bytes) noexcept;

}  // namespace bedplate
