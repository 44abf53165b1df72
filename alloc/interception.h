// Tells a program about the interception of malloc; works in programs with it and without.
#pragma once

#include <atomic>
#include <cstdint>

#include "alloc/fork_mark.h"
#include "alloc/interception_decision.h"
#include "pinned_pool/layout.h"
#include "platform/assert.h"

namespace bedplate {

// Whether malloc of this process hands out pool memory. The function calls malloc to find out.
// Threads: any.
bool malloc_is_intercepted() noexcept;

// The number of pointers that handed_out() has checked so far. Only debug builds check; other
// builds return 0.
uint64_t checked_pointer_count() noexcept;

extern std::atomic<uint64_t> checked_pointers;

// Returns `pointer`. Debug builds first check that it lies outside the pool if the decision is for
// ordinary memory, and otherwise in the pool: there the explicit interface allocates, too, if
// malloc is the program's own. They do not check nullptr, nor pointers of a forked child, whose
// heap lies outside the pool.
inline void* handed_out(void* pointer) noexcept {
#if BP_DEBUG
  BP_ASSERT(pointer == nullptr || is_forked_child() ||
            in_pool_range(pointer) == (interception_decision().backing != HeapBacking::kOrdinary));
  checked_pointers.fetch_add(1, std::memory_order_relaxed);
#endif
  return pointer;
}

}  // namespace bedplate
