#include "alloc/interception.h"

#include <cstdlib>

namespace bedplate {

constinit std::atomic<uint64_t> checked_pointers{0};

bool malloc_is_intercepted() noexcept {
  // Calls through a volatile pointer: the compiler knows malloc and would drop an unused block.
  void* (*volatile allocate)(size_t) = &std::malloc;
  void* block = allocate(1);
  const bool inside = block != nullptr && in_pool_range(block);
  std::free(block);
  return inside;
}

uint64_t checked_pointer_count() noexcept {
  return checked_pointers.load(std::memory_order_relaxed);
}

}  // namespace bedplate
