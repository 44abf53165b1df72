// Tells a program about the interception of malloc; works in programs with it and without.
#pragma once

#include <atomic>
#include <cstdint>

#include "alloc/fork_mark.h"
#include "alloc/interception_decision.h"
#include "pinned_pool/layout.h"
#include "platform/assert.h"

namespace bedplate {

// Whether malloc of this process hands out pool memory: tested by a call, not assumed.
bool malloc_is_intercepted() noexcept;

// Debug builds: the number of handed-out pointers, each checked to lie in the decided memory; else
// 0.
uint64_t checked_pointer_count() noexcept;

extern std::atomic<uint64_t> checked_pointers;

// Debug builds: checks that every pointer handed out lies in the pool, or, if the decision is "no",
// outside it. (A forked child's heap lies outside the pool.)
inline void* handed_out(void* pointer) noexcept {
#if BP_DEBUG
  BP_ASSERT(pointer == nullptr || is_forked_child() ||
            in_pool_range(pointer) == (interception_decision().backing == HeapBacking::kPool));
  checked_pointers.fetch_add(1, std::memory_order_relaxed);
#endif
  return pointer;
}

}  // namespace bedplate
