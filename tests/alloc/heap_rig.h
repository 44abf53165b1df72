// The pool's heap in the state after boot, for tests that run in their own process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "alloc/confined_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"

namespace bedplate::test {

// Creates a heap segment of `bytes`, of which the first `reserve_bytes` are the reserve. From then
// on, segment 0 gives out no new memory.
inline Segment& boot_heap(uint64_t bytes, uint64_t reserve_bytes = 0) {
  auto heap = process_pool().create_segment("heap", bytes, PageSize::k4KiB, 1);
  BP_PROBE_CHECK(heap.ok());
  const std::span<std::byte> memory = heap.value()->memory();
  BP_PROBE_CHECK(add_heap_memory(memory.subspan(reserve_bytes)));
  if (reserve_bytes > 0)
    BP_PROBE_CHECK(add_heap_reserve(memory.first(reserve_bytes), kRuntimeOwner));
  retire_boot_heap();
  return *heap.value();
}

// Requests the whole heap: a thread that is refused searches all heaps for free memory.
inline void find_all_that_is_free() {
  volatile size_t everything = heap_block_bytes_max();
  std::free(allocate(everything));
}

}  // namespace bedplate::test
