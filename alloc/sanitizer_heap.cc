// Sanitizer builds have no heap of their own: the sanitizer keeps malloc, so that it sees every
// block. The pool holds the carves of services, and the heap segment stays empty.
#include <algorithm>
#include <cstdlib>

#include <malloc.h>

#include "alloc/bad_pointer.h"
#include "alloc/confined_heap.h"
#include "alloc/heap_walk.h"
#include "alloc/pool_heap.h"
#include "alloc/thread_heaps.h"
#include "pinned_pool/boot_segment.h"
#include "platform/assert.h"

namespace bedplate {

void heap_create() noexcept { boot_segment(); }

bool add_heap_memory(std::span<std::byte>) noexcept { return true; }

bool add_heap_reserve(std::span<std::byte>, HeapOwner) noexcept { return true; }

bool choose_heap_of_owner(uint32_t) noexcept { return true; }

void return_empty_pages() noexcept {}

void retire_boot_heap() noexcept {}

void leave_boot_heap() noexcept {}

uint32_t heap_arena_count() noexcept { return 0; }

HeapArenaUse heap_arena_use(uint32_t) noexcept {
  BP_ASSERT(!"there are no arenas in a sanitizer build");
  return {};
}

bool heap_arena_is_open(uint32_t) noexcept {
  BP_ASSERT(!"there are no arenas in a sanitizer build");
  return false;
}

bool heap_unit_is_used(uint32_t, uint64_t) noexcept {
  BP_ASSERT(!"there are no arenas in a sanitizer build");
  return false;
}

uint64_t heap_block_bytes_max() noexcept { return 0; }

HeapWalk walk_heap() noexcept { return {}; }

uint64_t heap_free_bytes() noexcept { return 0; }

void set_low_memory_handler(uint64_t, LowMemoryHandler, void*) noexcept {}

void set_exhaustion_handler(ExhaustionHandler) noexcept {}

uint64_t bad_pointer_count() noexcept { return 0; }

void* pool_allocate(size_t bytes, size_t alignment) noexcept {
  void* block = nullptr;
  return posix_memalign(&block, std::max(alignment, sizeof(void*)), bytes) == 0 ? block : nullptr;
}

void* pool_reallocate(void* block, size_t bytes) noexcept {
  return std::realloc(block, std::max<size_t>(bytes, 1));
}

void pool_free(void* block) noexcept { std::free(block); }

size_t pool_usable_bytes(const void* block) noexcept {
  return malloc_usable_size(const_cast<void*>(block));
}

}  // namespace bedplate
