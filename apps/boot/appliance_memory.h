// The appliance's memory: taken as it was planned, and its heap's part handed to the heap.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/result.h"

namespace bedplate {

// All memory that the heap has, in pieces: segment 0 first.
using HeapParts = std::vector<std::span<const std::byte>>;

// Reserves all segments of the plan in `pool`, locked, and hands the heap its segment, the boot
// heap's end. The longest step of a boot: it ends early if a stop signal comes. Errors: memory is
// missing, or cannot be locked; the heap's tables do not fit.
Result<HeapParts> take_memory(const AppliancePlan& plan, PinnedPool& pool);

}  // namespace bedplate
