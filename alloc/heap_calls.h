// Allocation for the malloc family, operator new and the explicit interface. In the owner of the
// heap a call is a jump to mimalloc; a forked child beside a shared heap uses a small heap of its
// own. The owner checks the pointers that callers give back, as far as the build allows
// (bad_pointer.h).
//
// All allocating functions return nullptr if there is no memory. This code sets errno only for a
// bad pointer; mimalloc and the child's heap set ENOMEM if they find no memory. A product that
// overflows may leave errno unset. Threads: any.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "alloc/bad_pointer.h"
#include "alloc/child_heap.h"
#include "alloc/fork_mark.h"
#include "mimalloc.h"
#include "pinned_pool/layout.h"

namespace bedplate {

// The alignment in a child. In the owner of the heap, blocks of 8 bytes and less are aligned to 8.
inline constexpr size_t kDefaultAlignment = 16;

// These functions serve calls in a forked child, and calls whose block must be checked first. They
// are out of line, so that malloc and free are a comparison or two and then mimalloc's own few
// instructions, without a frame or a further jump.
[[gnu::noinline, gnu::cold]] inline void* allocate_elsewhere(size_t bytes) noexcept {
  return is_forked_child() ? child_allocate(bytes, kDefaultAlignment)
                           : enter_block(mi_malloc(bytes));
}
[[gnu::noinline, gnu::cold]] inline void free_elsewhere(void* block) noexcept {
  if (is_forked_child()) return child_free(block);
  if (leave_block(block, PointerUse::kFree)) mi_free(block);
}

[[gnu::always_inline]] inline void* heap_allocate(size_t bytes) noexcept {
  return owns_heap() ? enter_block(mi_malloc(bytes)) : allocate_elsewhere(bytes);
}

// Requires: `alignment` is a power of two.
inline void* heap_allocate_aligned(size_t bytes, size_t alignment) noexcept {
  if (owns_heap() || !is_forked_child()) return enter_block(mi_malloc_aligned(bytes, alignment));
  return child_allocate(bytes, alignment);
}

inline void* heap_allocate_zeroed(size_t count, size_t bytes_each) noexcept {
  if (owns_heap() || !is_forked_child()) return enter_block(mi_calloc(count, bytes_each));
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, bytes_each, &bytes)) return nullptr;
  void* block = child_allocate(bytes, kDefaultAlignment);
  return block == nullptr ? nullptr : std::memset(block, 0, bytes);
}

// Returns 0 for nullptr and for a bad pointer. In a child the block may be its parent's: mimalloc
// only reads here.
inline size_t heap_usable_bytes(const void* block) noexcept {
  if (owns_heap() || block == nullptr || in_pool_range(block)) {
    return is_block(block, PointerUse::kAskSize) ? mi_usable_size(block) : 0;
  }
  return child_usable_bytes(block);
}

// Returns nullptr with EINVAL for a bad pointer. If there is no memory, `block` stays valid. 0
// bytes are a request for a block, not a free.
inline void* heap_reallocate(void* block, size_t bytes) noexcept {
  if (owns_heap() || !is_forked_child()) {
    if (block != nullptr && !leave_block(block, PointerUse::kReallocate)) {
      errno = EINVAL;
      return nullptr;
    }
    void* moved = mi_realloc(block, bytes);
    enter_block(moved != nullptr ? moved : block);
    return moved;
  }
  if (block == nullptr) return child_allocate(bytes, kDefaultAlignment);
  return child_reallocate(block, heap_usable_bytes(block), bytes);
}

[[gnu::always_inline]] inline void heap_free(void* block) noexcept {
  if (BP_UNLIKELY(!owns_heap() || kKeepsLedger || !in_pool_range(block))) {
    return free_elsewhere(block);
  }
  mi_free(block);
}

}  // namespace bedplate
