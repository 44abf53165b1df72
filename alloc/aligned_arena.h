// Blocks at multiples of 4 MiB and more, up to 1 GiB: finds their positions in an arena.
//
//     arena   |    unit    |    unit    |    unit    |    unit    |
//                          ^ segment    ^ block, at a multiple of the alignment
//
// mimalloc finds a block's segment at the last multiple of 4 MiB before it, so such a block has a
// segment of its own that begins one unit (4 MiB) earlier. mimalloc itself asks the system for
// these segments; this code takes them from the first arena with enough free units.
//
// confined_mimalloc.cc includes this once, after arena.c.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "alloc/boot_growth.h"
#include "alloc/confined_heap.h"
#include "pinned_pool/boot_segment.h"
#include "platform/units.h"

namespace bedplate {

inline size_t arena_units_of(size_t bytes) noexcept {
  return bytes / MI_ARENA_BLOCK_SIZE + (bytes % MI_ARENA_BLOCK_SIZE != 0);
}

// Takes `count` units of the arena from `first` on. Returns false if one of them is in use.
inline bool claim_units(mi_arena_t& arena, size_t first, size_t count) noexcept {
  for (size_t claimed = 0; claimed < count;) {
    const size_t at = first + claimed;
    const size_t bit = at % MI_BITMAP_FIELD_BITS;
    const size_t bits = std::min(count - claimed, MI_BITMAP_FIELD_BITS - bit);
    const size_t mask = mi_bitmap_mask_(bits, bit);
    mi_bitmap_field_t* field = &arena.blocks_inuse[at / MI_BITMAP_FIELD_BITS];
    size_t map = mi_atomic_load_relaxed(field);
    while ((map & mask) == 0 && !mi_atomic_cas_strong_acq_rel(field, &map, map | mask)) {
    }
    if ((map & mask) != 0) {
      if (claimed > 0) {
        _mi_bitmap_unclaim_across(arena.blocks_inuse, arena.field_count, claimed, first);
      }
      return false;
    }
    claimed += bits;
  }
  return true;
}

// The first unit of the arena at which such a segment can begin. The segment's block begins
// `align_offset` bytes later, at a multiple of `alignment`. The next such unit lies `alignment`
// bytes after this one.
inline size_t first_aligned_unit(const mi_arena_t& arena, size_t alignment,
                                 size_t align_offset) noexcept {
  const auto start = reinterpret_cast<uintptr_t>(mi_atomic_load_relaxed(&arena.start));
  return (align_up(start + align_offset, alignment) - align_offset - start) / MI_ARENA_BLOCK_SIZE;
}

// Does the work of _mi_arena_alloc_aligned in one arena. Returns nullptr if the arena has no such
// free units.
inline void* take_aligned_units(mi_arena_t& arena, size_t count, size_t alignment,
                                size_t align_offset, bool* is_zero, size_t* memid) noexcept {
  size_t unit = first_aligned_unit(arena, alignment, align_offset);
  for (; unit + count <= arena.block_count; unit += alignment / MI_ARENA_BLOCK_SIZE) {
    if (!claim_units(arena, unit, count)) continue;
    *memid = mi_arena_memid_create(arena.id, arena.exclusive, unit);
    *is_zero = _mi_bitmap_claim_across(arena.blocks_dirty, arena.field_count, count, unit, nullptr);
    return mi_atomic_load_relaxed(&arena.start) + unit * MI_ARENA_BLOCK_SIZE;
  }
  return nullptr;
}

// Whether the heap, if it were empty, could serve a block of `bytes`. Reserves do not count.
// `alignment` is 0, or above MI_ALIGNMENT_MAX. Cost: a comparison for each arena.
inline bool could_ever_serve(size_t bytes, size_t alignment) noexcept {
  if (bytes > PTRDIFF_MAX - 2 * MI_SEGMENT_SIZE) return false;
  const size_t header = alignment == 0 ? MI_SEGMENT_SLICE_SIZE : MI_SEGMENT_SIZE;
  const size_t count = arena_units_of(bytes + header);
  for (size_t i = 0; i < mi_atomic_load_relaxed(&mi_arena_count); ++i) {
    const mi_arena_t* arena = mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[i]);
    if (arena == nullptr || arena->exclusive) continue;
    const size_t first =
        alignment == 0 ? 0 : first_aligned_unit(*arena, alignment, MI_SEGMENT_ALIGN);
    if (first + count <= arena->block_count) return true;
  }
  return false;
}

// Grows segment 0 for the block. Returns true if an empty heap could then serve the block.
inline bool grow_boot_heap_for(size_t bytes, size_t alignment) noexcept {
  if (bytes > kBootGrownBytesMax || !grow_boot_heap(bytes + alignment + MI_SEGMENT_SIZE)) {
    return false;
  }
  return could_ever_serve(bytes, alignment);
}

}  // namespace bedplate

// Replaces _mi_arena_alloc_aligned, and calls it if `align_offset` is 0. Returns nullptr with
// ENOMEM if no arena has the units.
static void* bp_arena_alloc_aligned(size_t size, size_t alignment, size_t align_offset,
                                    bool* commit, bool* large, bool* is_pinned, bool* is_zero,
                                    mi_arena_id_t wanted, size_t* memid, mi_os_tld_t* tld) {
  if (align_offset == 0) {
    return _mi_arena_alloc_aligned(size, alignment, align_offset, commit, large, is_pinned, is_zero,
                                   wanted, memid, tld);
  }
  for (size_t i = 0; i < mi_atomic_load_relaxed(&mi_arena_count); ++i) {
    mi_arena_t* arena = mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[i]);
    if (arena == nullptr || !mi_arena_id_is_suitable(arena->id, arena->exclusive, wanted)) continue;
    void* segment = bedplate::take_aligned_units(*arena, bedplate::arena_units_of(size), alignment,
                                                 align_offset, is_zero, memid);
    if (segment == nullptr) continue;
    *commit = true;
    *large = arena->is_large;
    *is_pinned = arena->is_large || !arena->allow_decommit;
    return segment;
  }
  errno = ENOMEM;
  return nullptr;
}
