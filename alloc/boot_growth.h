// Lets segment 0 grow before there is a plan.
//
// A program reads and plans its configuration in segment 0, and reads the answers of a running
// appliance there. The configuration and the answers may have any size, so the commands of a
// program let segment 0 grow in place whenever it is exhausted. `run` ends the growth: segment 0
// then gets the planned size (apps/boot/boot_plan.h). In programs without commands segment 0 keeps
// its size from link time or the environment; these programs can add to the heap (added_heap.h).
//
// Threads: the main thread, before it starts others. If the heap does not lie in the pool, segment
// 0 does not grow, but fix_boot_heap() still gives it its planned size.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

// No configuration takes this much: code that needs more has a defect.
inline constexpr uint64_t kBootGrownBytesMax = kGiB;

// From here on segment 0 grows when it is exhausted, up to kBootGrownBytesMax. Until
// end_boot_growth(), a `new` that still fails ends the process with exit code 1, unless the program
// has set a new-handler: no code of the runtime catches exceptions. The message about exhaustion
// (exhaustion.h) is then normally the last line.
void let_boot_heap_grow() noexcept;
// From here on segment 0 does not grow, and a `new` that fails throws.
void end_boot_growth() noexcept;

// Makes segment 0 as large as planned, at once. It does not grow after that. Requires: `bytes` is a
// multiple of kBootBytesGranularity and of the segment's pages; segment 0 is the only segment.
// Errors (kSystem): segment 0 is larger already; the system has no more memory, with the reason.
Result<void> fix_boot_heap(uint64_t bytes);

// The exhausted heap calls this: it grows segment 0 for a block of `bytes`, by a quarter of its
// size at least. Returns false if segment 0 cannot or may not grow.
bool grow_boot_heap(uint64_t bytes) noexcept;

}  // namespace bedplate
