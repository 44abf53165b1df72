// The heap inside the pool: the interface to mimalloc for the rest of Bedplate.
//
// Allocation goes through malloc and new (interception.cc) or mi_malloc; this header adds memory to
// the heap and reports its use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "alloc/heap_owner.h"
#include "platform/units.h"

namespace bedplate {

// mimalloc takes memory in segments of this size, at least one for each thread that allocates.
inline constexpr uint64_t kHeapGranularityBytes = 4 * kMiB;
// A heap of one segment is useless: the first thread takes that segment at its first allocation.
inline constexpr uint64_t kHeapBytesMin = 2 * kHeapGranularityBytes;

// Creates the heap, unless the first malloc has done so: in segment 0, or in ordinary memory if
// interception_decision.h says so.
void heap_create() noexcept;

// Hands `memory` of the pool to the heap, for good. A heap of ordinary memory does not use it.
// Requires: aligned to kHeapGranularityBytes, zeroed.
// Returns false if the bookkeeping does not fit into the metadata zone.
bool add_heap_memory(std::span<std::byte> memory) noexcept;

// Adds a reserve: memory that serves `owner` alone once the rest of the heap is exhausted, so that
// this owner keeps working. Each thread that uses it takes at least kHeapGranularityBytes of it.
// Requires and returns the same as add_heap_memory; once for each owner.
bool add_heap_reserve(std::span<std::byte> memory, HeapOwner owner) noexcept;
// The size of the runtime's own reserve. enter_heap_owner makes the heaps of owners in this
// reserve, too.
inline constexpr uint64_t kHeapReserveBytes = 2 * kHeapGranularityBytes;

// Ends the use of segment 0 for new memory; its blocks stay valid. Boot calls it when the heap
// segment exists, so that the data of the appliance lies on hugepages.
void retire_boot_heap() noexcept;

// From now on the calling thread takes no new pages from its mimalloc segments in segment 0. A
// process needs this if it lends heap memory to processes that cannot read its segment 0. Pages in
// use stay with their present owner, which may still allocate from them. A thread that must not do
// so enters another owner (heap_owner.h). Cost: at least kHeapGranularityBytes more of the new
// heap.
void leave_boot_heap() noexcept;

struct HeapArenaUse {
  const std::byte* address = nullptr;  // the beginning of the arena; identifies the segment
  uint64_t bytes = 0;
  uint64_t used_bytes = 0;  // in units of kHeapGranularityBytes
};

// The arenas in the order in which they were added. Threads: any; the figures are a snapshot.
uint32_t heap_arena_count() noexcept;
HeapArenaUse heap_arena_use(uint32_t index) noexcept;

// Whether this arena serves all owners. A reserve does not, nor does segment 0 after boot.
bool heap_arena_is_open(uint32_t index) noexcept;
// Whether the arena's unit number `unit` is in use. A unit has kHeapGranularityBytes.
bool heap_unit_is_used(uint32_t index, uint64_t unit) noexcept;

// For a forked child with a copy of the heap: resets the count of threads that read mimalloc's list
// of abandoned segments, since these threads do not exist in the child.
void forget_segment_readers() noexcept;

// The largest block that an empty heap could serve, with an error below 64 KiB.
uint64_t heap_block_bytes_max() noexcept;

// The free bytes of the arenas that serve all owners, in units of kHeapGranularityBytes.
uint64_t heap_free_bytes() noexcept;

// The size of the blocks in the page that a pointer lies in, and the pointer's offset in its block.
// The block may be used or free. bytes = 0: unknown. A snapshot, for messages only.
struct HeapSizeClass {
  size_t bytes = 0;
  size_t offset_bytes = 0;
};
HeapSizeClass heap_size_class_at(const void* pointer) noexcept;

// The largest alignment that the heap serves: segments of the pool begin at multiples of it.
inline constexpr size_t kAlignmentBytesMax = kGiB;

// A request that was refused.
struct HeapRefusal {
  enum class Cause {
    kExhausted,  // the heap is too full, or the owner is at its limit
    kNeverFits,  // not even an empty heap could serve it; no search was made
    kAlignment,  // above kAlignmentBytesMax; no search was made
  };
  size_t bytes = 0;
  size_t alignment = 0;  // 0: malloc's own
  Cause cause = Cause::kExhausted;
};

// Called by the refused thread each time the heap cannot serve a request; errno is ENOMEM already.
// It must not allocate.
using ExhaustionHandler = void (*)(const HeapRefusal& refusal);
void set_exhaustion_handler(ExhaustionHandler handler) noexcept;

}  // namespace bedplate
