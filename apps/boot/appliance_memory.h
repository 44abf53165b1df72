// The appliance's memory: takes it as planned, and hands the heap its part.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/result.h"

namespace bedplate {

// All memory that the heap has, in parts: segment 0 first.
using HeapParts = std::vector<std::span<const std::byte>>;

// Reserves all segments of the plan in `pool`, locked, and hands the heap its segment; the boot
// heap ends here. This is the longest step of a boot: a stop signal ends it early, with an error.
// Errors: memory is missing, or cannot be locked; the heap's tables do not fit.
Result<HeapParts> take_memory(const AppliancePlan& plan, PinnedPool& pool);

}  // namespace bedplate
