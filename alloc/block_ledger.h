// The ledger of blocks: one bit for each word of the heap, set if a block that is handed out begins
// there. It finds a bad free before the allocator sees it: a second free (from any thread), a free
// of the middle of a block, a free of memory that never was a block.
//
// Only debug and hardened builds have it (bad_pointer.h). It lies outside the pool, in private
// memory, where no stray write through a neighbouring block reaches it: 1/64 of the heap's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

// From now on blocks of `arena` have an entry. Takes the ledger's memory, for good.
// Returns false when the system has none, or there are too many arenas.
// Threads: one at a time; others may use the ledger meanwhile.
bool ledger_create(std::span<std::byte> arena) noexcept;

// `block` is handed out. Requires: it lies in an arena, at a multiple of a word.
// Threads: any. Cost: an atomic read-modify-write.
void ledger_enter(const void* block) noexcept;

// `block` comes back. Returns false when no block begins there that is handed out.
// Threads: any; of several that bring the same block one gets true. Cost: as ledger_enter.
bool ledger_leave(const void* block) noexcept;

// Whether a block that is handed out begins at `pointer`.
bool ledger_has(const void* pointer) noexcept;

// The block handed out that begins last before `pointer`, whether it reaches that far or not;
// nullptr: none within 1 GiB. Cost: a search, for messages only.
const void* ledger_block_before(const void* pointer) noexcept;

}  // namespace bedplate
