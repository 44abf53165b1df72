// Segment 0 grows while nothing is planned yet.
//
// A program reads and plans its configuration in segment 0. It also reads there the answers of a
// running appliance. Both may be of any size, so the commands of a program let segment 0 grow, in
// place, whenever it is exhausted. `run` ends that: segment 0 gets the size that the plan says
// (apps/boot/boot_plan.h), and no more. Programs without commands keep the segment 0 that they were
// linked or started with, or add to the heap (added_heap.h).
//
// Threads: the main one, while there is no other. Does nothing if the heap is not the pool's.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

// More than any configuration takes: code that asks for more has a defect.
inline constexpr uint64_t kBootGrownBytesMax = kGiB;

// From here on segment 0 grows when it is exhausted, up to kBootGrownBytesMax. A `new` that it
// cannot serve all the same ends the process, with the message about exhaustion (exhaustion.h) as
// the last line: nobody here catches exceptions.
void let_boot_heap_grow() noexcept;
// From here on segment 0 does not grow, and `new` throws.
void end_boot_growth() noexcept;

// Makes segment 0 as large as planned, at once; it grows no more. Requires: a multiple of
// kBootBytesGranularity and of its pages; it is the only segment.
// Errors (kSystem): it is larger already; the system has no more, and why.
Result<void> fix_boot_heap(uint64_t bytes);

// The exhausted heap calls it: gives segment 0 room for a block of `bytes`. Returns false if it
// cannot.
bool grow_boot_heap(uint64_t bytes) noexcept;

}  // namespace bedplate
