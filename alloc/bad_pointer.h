// Bad pointers: a pointer passed to free, realloc or malloc_usable_size that is no block of the
// heap.
//
//   release    a pointer outside the pool is refused, by one comparison; mimalloc trusts all others
//   hardened   the ledger (block_ledger.h) detects every bad pointer; it is refused, counted and
//              reported (at most once a second); the heap stays sound
//   debug      the same, and the process stops; sized deletes are checked as well
//
// Sanitizer builds leave all checks to the sanitizer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "alloc/block_ledger.h"
#include "pinned_pool/layout.h"
#include "platform/assert.h"

#ifndef BP_HARDENED
#define BP_HARDENED 0
#endif

namespace bedplate {

inline constexpr bool kKeepsLedger = BP_DEBUG || BP_HARDENED;

enum class PointerUse { kFree, kReallocate, kAskSize };

// Counts and reports the bad `pointer`: the owner of its memory, the fault, and the call stack.
// Debug builds stop. Allocates nothing. Threads: any.
void report_bad_pointer(const void* pointer, PointerUse use) noexcept;

// The same for a sized delete with a wrong size.
void report_bad_size(const void* block, size_t deleted_bytes) noexcept;

// The same for damage that mimalloc finds in its own lists; `error_number` comes from its error
// handler.
void report_heap_damage(int error_number) noexcept;

// The number of bad pointers so far.
uint64_t bad_pointer_count() noexcept;

// Whether `pointer`, which lies outside the pool, is still a block: of a heap in ordinary memory.
// Reports it if not. nullptr is no block, and no error.
bool is_block_outside_pool(const void* pointer, PointerUse use) noexcept;

// Enters a block into the ledger as it is handed out. Returns the block.
inline void* enter_block(void* block) noexcept {
  if constexpr (kKeepsLedger) {
    if (block != nullptr) ledger_enter(block);
  }
  return block;
}

// Whether `block` may be given back to mimalloc. False for nullptr, which needs no free. Cost: in
// release builds one comparison.
inline bool leave_block(void* block, PointerUse use) noexcept {
  if constexpr (kKeepsLedger) {
    if (BP_LIKELY(ledger_leave(block))) return true;
    if (block != nullptr) report_bad_pointer(block, use);
    return false;
  }
  return BP_LIKELY(in_pool_range(block)) || is_block_outside_pool(block, use);
}

// Whether mimalloc may be asked about `block`.
inline bool is_block(const void* block, PointerUse use) noexcept {
  if constexpr (kKeepsLedger) {
    if (BP_LIKELY(ledger_has(block))) return true;
    if (block != nullptr) report_bad_pointer(block, use);
    return false;
  }
  return BP_LIKELY(in_pool_range(block)) || is_block_outside_pool(block, use);
}

}  // namespace bedplate
