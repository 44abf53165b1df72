// The metadata zone: memory for mimalloc's own records (arena tables, one record per thread).
//
// mimalloc asks the system for these with mmap; here they come from a fixed piece of segment 0. Few
// sizes are asked for again and again (threads come and go), so pieces that are given back are kept
// in a list and the first piece of exactly the same size is used again. Nothing is split or merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/units.h"

namespace bedplate {

// Some 500 threads' records, or the tables for 1 TiB of heap.
inline constexpr uint64_t kMetadataZoneBytes = 4 * kMiB;

// Requires: called once, before the others, with zeroed memory.
void metadata_zone_create(std::span<std::byte> memory) noexcept;

// Zeroed memory of `bytes`, rounded up to 4 KiB; MAP_FAILED with errno ENOMEM when the zone is
// used up. Threads: any.
void* metadata_zone_map(size_t bytes) noexcept;

// Gives back what metadata_zone_map gave. Returns 0. Threads: any.
int metadata_zone_unmap(void* address, size_t bytes) noexcept;

// Around a fork(): nobody is in the midst of the others.
void hold_metadata_zone() noexcept;
void release_metadata_zone() noexcept;

// How much of the zone was ever handed out.
uint64_t metadata_zone_used_bytes() noexcept;

}  // namespace bedplate
