// The metadata zone: memory for mimalloc's own records (arena tables, one record per thread).
//
// mimalloc normally gets this memory from mmap. Here it comes from a fixed part of segment 0, or of
// the heap's ordinary memory. Threads come and go and request the same few sizes again and again.
// So the zone keeps records given back in a list, and a request takes the first record of exactly
// its size. The zone never splits or merges records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/units.h"

namespace bedplate {

// Enough for some 500 threads' records, or the tables for 1 TiB of heap.
inline constexpr uint64_t kMetadataZoneBytes = 4 * kMiB;

// Requires: called once, before the other functions, with zeroed memory aligned to 4 KiB.
void metadata_zone_create(std::span<std::byte> memory) noexcept;

// Zeroed memory of `bytes`, rounded up to 4 KiB; MAP_FAILED with errno ENOMEM if the zone is
// exhausted. Threads: any.
void* metadata_zone_map(size_t bytes) noexcept;

// Gives back memory of metadata_zone_map; `bytes` as there. Always returns 0. Threads: any.
int metadata_zone_unmap(void* address, size_t bytes) noexcept;

// Held around a fork(), so that no other thread is inside these functions.
void hold_metadata_zone() noexcept;
void release_metadata_zone() noexcept;

// The bytes of the zone that were ever handed out, also those given back. Threads: any.
uint64_t metadata_zone_used_bytes() noexcept;

}  // namespace bedplate
