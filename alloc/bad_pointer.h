// Bad pointers: they are freed, reallocated or asked about, and are no block of the heap.
//
//   release    a pointer that lies outside the pool is refused, by one comparison; the rest is
//              mimalloc's, which believes what it is told
//   hardened   every bad pointer is known by the ledger (block_ledger.h), refused, counted and, at
//              most once a second, reported; the heap stays sound
//   debug      the same, and the process stops; sized deletes are checked as well
//
// Sanitizer builds leave all of it to the sanitizer.
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

// Counts and reports `pointer`, which is no block of the heap: the owner of its memory, the fault,
// and the calls that led here. Debug builds stop. Allocates nothing. Threads: any.
void report_bad_pointer(const void* pointer, PointerUse use) noexcept;

// The same for a delete whose size is not that of its block.
void report_bad_size(const void* block, size_t deleted_bytes) noexcept;

// The same for damage that mimalloc finds in its own lists: `error_number` is its handler's.
void report_heap_damage(int error_number) noexcept;

// The number of bad pointers so far.
uint64_t bad_pointer_count() noexcept;

// Whether `pointer`, which lies outside the pool, is a block nevertheless: of a heap in ordinary
// memory. Reports it if not; nullptr is none, and no fault.
bool is_block_outside_pool(const void* pointer, PointerUse use) noexcept;

// Each block passes here as it is handed out. Returns it.
inline void* enter_block(void* block) noexcept {
  if constexpr (kKeepsLedger) {
    if (block != nullptr) ledger_enter(block);
  }
  return block;
}

// Whether `block` may go to mimalloc, which takes it back. False for nullptr, which needs nothing.
// Cost: release one comparison.
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
