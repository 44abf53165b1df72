// Explicit allocation from the pool's heap, for programs whose malloc is not the pool's.
//
// pool_resource, pool_allocator.h and the C interface build on it. The interception serves from the
// same heap: blocks may be freed through either. Under a sanitizer this is the sanitizer's malloc.
// Not for signal handlers. docs/allocator.md, "Bad frees", describes the result of a bad free.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bedplate {

// A block of at least `bytes`, not zeroed; nullptr if the heap is exhausted, or the thread's owner
// is at its limit (heap_owner.h); errno is meaningless then.
// Requires: `alignment` is a power of two. Ownership: the caller's, until pool_free. Threads: any.
void* pool_allocate(std::size_t bytes, std::size_t alignment) noexcept;

// As realloc, but 0 bytes are a normal request, not a free. nullptr: exhausted, and `block` stays
// valid. An alignment beyond alignof(max_align_t) is not kept. Threads: any.
void* pool_reallocate(void* block, std::size_t bytes) noexcept;

// nullptr is allowed. Threads: any, not only the one that allocated.
void pool_free(void* block) noexcept;

// The usable bytes of `block`: at least the requested size; 0 for nullptr. Threads: any.
std::size_t pool_usable_bytes(const void* block) noexcept;

// `handler` is called when the free bytes of the heap fall below `free_bytes`, and not again until
// they have risen above; and for each request that cannot be met. It should shed load: memory that
// it frees may still save the request. It runs on any thread, within that thread's malloc; it may
// allocate, but not wait for other threads. nullptr: no handler. Threads: call it before others
// allocate. Under a sanitizer the handler is never called.
using LowMemoryHandler = void (*)(void* context);
void set_low_memory_handler(std::uint64_t free_bytes, LowMemoryHandler handler,
                            void* context) noexcept;

}  // namespace bedplate
