// PoolAllocator: a standard allocator on the pool's heap.
//
// It has no state: all PoolAllocators are equal, so containers swap and move their memory freely.
// Threads: any; one thread may give back a block that another one took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "alloc/pool_heap.h"
#include "alloc/pool_resource.h"

namespace bedplate {

template <typename T>
class PoolAllocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  constexpr PoolAllocator() noexcept = default;
  template <typename U>
  constexpr PoolAllocator(const PoolAllocator<U>&) noexcept {}

  // Errors: throws std::bad_alloc, or std::bad_array_new_length when the product overflows.
  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > SIZE_MAX / sizeof(T)) throw_bad_array_new_length();
    return static_cast<T*>(pool_allocate_or_throw(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* block, std::size_t) noexcept { pool_free(block); }

  template <typename U>
  friend constexpr bool operator==(const PoolAllocator&, const PoolAllocator<U>&) noexcept {
    return true;
  }
};

}  // namespace bedplate
