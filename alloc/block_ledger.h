// The ledger of blocks: one bit for each word of the heap, set while a block in use begins there.
// It detects a bad free before the allocator sees it: a second free (by any thread), a free of the
// middle of a block, a free of memory that never was a block. It does not detect a second free
// after a new block has begun at the same address.
//
// Only debug and hardened builds have it (bad_pointer.h). It takes 1/64 of the heap's bytes, in
// private memory outside the pool: a write beyond the end of a block does not reach it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

// Adds entries for the blocks of `arena`. Takes the ledger's memory, for good.
// Returns false if the system has no memory, or 64 arenas have entries already.
// Threads: one at a time; others may use the ledger meanwhile.
bool ledger_create(std::span<std::byte> arena) noexcept;

// Records that `block` is handed out. Requires: it lies in an arena, at a multiple of 8 bytes.
// Threads: any. Cost: an atomic read-modify-write.
void ledger_enter(const void* block) noexcept;

// Records that `block` comes back. Returns false if no block in use begins there.
// Threads: any; if several free the same block, one gets true. Cost: as ledger_enter.
bool ledger_leave(const void* block) noexcept;

// Whether a block in use begins at `pointer`. Threads: any.
bool ledger_has(const void* pointer) noexcept;

// The last block in use that begins before `pointer`, even if it ends before `pointer`. Returns
// nullptr if none begins within 1 GiB, or if `pointer` lies in no arena. Threads: any. Cost: a
// search, for messages only.
const void* ledger_block_before(const void* pointer) noexcept;

}  // namespace bedplate
