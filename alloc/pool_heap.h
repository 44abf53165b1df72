// Explicit allocation from the pool's heap, for programs whose malloc is not the pool's.
//
// pool_resource, pool_allocator.h and the C interface build on it. The intercepted malloc uses the
// same heap: pool_free may free its blocks, and free() may free blocks of pool_allocate. Under a
// sanitizer these functions call the sanitizer's malloc. Not for signal handlers.
// docs/allocator.md, "Bad frees", describes the result of a bad free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/version.h"

namespace bedplate {

// Returns a block of at least `bytes`, not zeroed. Returns nullptr if the heap is exhausted or too
// small for the request, or if the thread's owner is at its limit (heap_owner.h); errno then means
// nothing.
// Requires: `alignment` is a power of two. Ownership: the caller's, until pool_free. Threads: any.
void* pool_allocate(std::size_t bytes, std::size_t alignment) noexcept;

// As realloc, but 0 bytes are a normal request, not a free. nullptr: exhausted, and `block` stays
// valid. An alignment beyond alignof(max_align_t) is not kept. Threads: any.
void* pool_reallocate(void* block, std::size_t bytes) noexcept;

// nullptr is allowed. Threads: any, not only the one that allocated.
void pool_free(void* block) noexcept;

// The usable bytes of `block`: at least the requested size; 0 for nullptr. Threads: any.
std::size_t pool_usable_bytes(const void* block) noexcept;

// The heap calls `handler` when its free bytes fall below `free_bytes`, and again only after they
// have risen above it in between. It also calls `handler` before it refuses a request while fewer
// than `free_bytes` are free. The handler should shed load: the heap may serve the request from
// memory that the handler frees. The handler runs on any thread, within that thread's malloc; it
// may allocate, but not wait for other threads. nullptr: no handler. Threads: set it before other
// threads allocate. Under a sanitizer the handler is never called.
using LowMemoryHandler = void (*)(void* context);
void set_low_memory_handler(std::uint64_t free_bytes, LowMemoryHandler handler,
                            void* context) noexcept;

}  // namespace bedplate
