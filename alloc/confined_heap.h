// The heap inside the pool: the interface to mimalloc for the rest of Bedplate.
//
// Allocation itself goes through malloc and new (interception.cc) or mi_malloc; this header is for
// handing memory over and for asking how much of it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "alloc/heap_owner.h"
#include "platform/units.h"

namespace bedplate {

// mimalloc takes memory in segments of this size, at least one for each thread that allocates.
inline constexpr uint64_t kHeapGranularityBytes = 4 * kMiB;
// Less is useless: the first thread takes one segment at once.
inline constexpr uint64_t kHeapBytesMin = 2 * kHeapGranularityBytes;

// Creates the heap, if the first malloc did not do so already: in segment 0, or in ordinary memory
// when interception_decision.h says so.
void heap_create() noexcept;

// Hands `memory` of the pool to the heap, for good. A heap of ordinary memory leaves it alone.
// Requires: aligned to kHeapGranularityBytes, zeroed.
// Returns false when the bookkeeping does not fit into the metadata zone.
bool add_heap_memory(std::span<std::byte> memory) noexcept;

// A reserve: memory for allocations of `owner` alone, once there is no other. So that owner can do
// its work while the heap is full. Each thread that uses it takes at least kHeapGranularityBytes of
// it. Requires and returns what add_heap_memory does; once for each owner.
bool add_heap_reserve(std::span<std::byte> memory, HeapOwner owner) noexcept;
// The runtime's own reserve. The heaps of owners are made in it, too (enter_heap_owner).
inline constexpr uint64_t kHeapReserveBytes = 2 * kHeapGranularityBytes;

// From now on nothing new comes from segment 0; blocks that lie there stay valid. Called once the
// heap segment is there, so that the data of the appliance lies on hugepages.
void retire_boot_heap() noexcept;

// From now on the calling thread cuts no new pages from its part of segment 0 either: for processes
// whose segment 0 no other can read. Pages that it has begun stay in use by its present owner: a
// thread that wants none of these enters another owner (heap_owner.h). Cost: at least
// kHeapGranularityBytes more of the new heap.
void leave_boot_heap() noexcept;

struct HeapArenaUse {
  const std::byte* address = nullptr;  // where the arena begins: tells the segment
  uint64_t bytes = 0;
  uint64_t used_bytes = 0;  // in units of kHeapGranularityBytes
};

// The arenas in the order in which they were added. Threads: any; the figures are a snapshot.
uint32_t heap_arena_count() noexcept;
HeapArenaUse heap_arena_use(uint32_t index) noexcept;

// Whether new memory for everybody comes from this arena: not from segment 0 after boot, nor from
// the reserve.
bool heap_arena_is_open(uint32_t index) noexcept;
// Whether the arena's `unit`-th kHeapGranularityBytes are in use.
bool heap_unit_is_used(uint32_t index, uint64_t unit) noexcept;

// In a forked child with a copy of the heap: nobody else reads mimalloc's list of segments that
// ended threads left.
void forget_segment_readers() noexcept;

// The largest block that an empty heap could serve. Not exact by less than 64 KiB.
uint64_t heap_block_bytes_max() noexcept;

// How much of the arenas is free for everybody, in units of kHeapGranularityBytes.
uint64_t heap_free_bytes() noexcept;

// The size class of the part of the heap that a pointer lies in, and how far behind the beginning
// of one of its blocks, used or free, it lies. bytes = 0: unknown. For messages: a snapshot.
struct HeapSizeClass {
  size_t bytes = 0;
  size_t offset_bytes = 0;
};
HeapSizeClass heap_size_class_at(const void* pointer) noexcept;

// The largest alignment that the heap serves: the pool's segments begin at multiples of it.
inline constexpr size_t kAlignmentBytesMax = kGiB;

// A request that was refused.
struct HeapRefusal {
  enum class Cause {
    kExhausted,  // there was a place for it once, or its owner may have no more
    kNoPlace,    // not even an empty heap has one: told without looking anywhere
    kAlignment,  // above kAlignmentBytesMax, likewise
  };
  size_t bytes = 0;
  size_t alignment = 0;  // 0: malloc's own
  Cause cause = Cause::kExhausted;
};

// Called, by the thread that was refused, each time the heap cannot serve a request; errno is
// ENOMEM already. It must not allocate.
using ExhaustionHandler = void (*)(const HeapRefusal& refusal);
void set_exhaustion_handler(ExhaustionHandler handler) noexcept;

}  // namespace bedplate
