// A program's questions about the interception of malloc, for programs with it and without.
#pragma once

#include <atomic>
#include <cstdint>

#include "alloc/fork_mark.h"
#include "alloc/interception_decision.h"
#include "pinned_pool/layout.h"
#include "platform/assert.h"

namespace bedplate {

// Whether malloc of this process hands out pool memory: tried, not assumed.
bool malloc_is_intercepted() noexcept;

// Debug builds: how many pointers were handed out, each of them seen to lie where the decision
// says; else 0.
uint64_t checked_pointer_count() noexcept;

extern std::atomic<uint64_t> checked_pointers;

// Debug builds: checks promise 1 for every pointer that the program ever gets, and that no pointer
// is the pool's if the decision is "no". (A forked child's heap is its own and not the pool's.)
inline void* handed_out(void* pointer) noexcept {
#if BP_DEBUG
  BP_ASSERT(pointer == nullptr || is_forked_child() ||
            in_pool_range(pointer) == (interception_decision().backing == HeapBacking::kPool));
  checked_pointers.fetch_add(1, std::memory_order_relaxed);
#endif
  return pointer;
}

}  // namespace bedplate
