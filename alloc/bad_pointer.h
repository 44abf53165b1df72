// Bad pointers: a pointer passed to free, realloc or malloc_usable_size that is no block of the
// heap.
//
//   release    one comparison detects a pointer outside the pool; mimalloc trusts all others
//   hardened   the ledger (block_ledger.h) detects every pointer at which no block in use begins
//   debug      as hardened, but a bad pointer stops the process; sized deletes are checked as well
//
// The heap refuses a detected pointer, and so stays sound. It counts the pointer, and reports it
// (at most once a second). A forked child beside a shared heap checks only malloc_usable_size, for
// pointers into the pool. Sanitizer builds leave all checks to the sanitizer.
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

// Counts the bad `pointer`, and reports the owner of its memory, the fault, and the call stack. At
// most one report a second is written, here and below. Debug builds stop. Allocates nothing.
// Threads: any.
void report_bad_pointer(const void* pointer, PointerUse use) noexcept;

// Counts and reports a sized delete with a wrong size.
void report_bad_size(const void* block, size_t deleted_bytes) noexcept;

// Counts and reports damage that mimalloc finds in its own lists. mimalloc passes `error_number` to
// its error handler.
void report_heap_damage(int error_number) noexcept;

// The number of bad pointers, wrong sizes and damaged lists so far, reported or not. Threads: any.
uint64_t bad_pointer_count() noexcept;

// Whether `pointer`, which lies outside the pool, lies in a heap in ordinary memory. Otherwise
// reports it as bad. Returns false for nullptr, and reports nothing.
bool is_block_outside_pool(const void* pointer, PointerUse use) noexcept;

// Enters a block into the ledger as it is handed out, if the build has a ledger. Returns the block.
inline void* enter_block(void* block) noexcept {
  if constexpr (kKeepsLedger) {
    if (block != nullptr) ledger_enter(block);
  }
  return block;
}

// Whether `block` may be given back to mimalloc; removes it from the ledger. Reports a bad pointer.
// Returns false for nullptr, which needs no free. Cost: in release builds one comparison.
inline bool leave_block(void* block, PointerUse use) noexcept {
  if constexpr (kKeepsLedger) {
    if (BP_LIKELY(ledger_leave(block))) return true;
    if (block != nullptr) report_bad_pointer(block, use);
    return false;
  }
  return BP_LIKELY(in_pool_range(block)) || is_block_outside_pool(block, use);
}

// Whether mimalloc may be asked about `block`. Reports a bad pointer. Returns false for nullptr.
inline bool is_block(const void* block, PointerUse use) noexcept {
  if constexpr (kKeepsLedger) {
    if (BP_LIKELY(ledger_has(block))) return true;
    if (block != nullptr) report_bad_pointer(block, use);
    return false;
  }
  return BP_LIKELY(in_pool_range(block)) || is_block_outside_pool(block, use);
}

}  // namespace bedplate
