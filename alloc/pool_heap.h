// The pool's heap by name, for programs that do not want malloc itself to be the pool's.
//
// pool_resource, pool_allocator.h and the C interface stand on it. The interception serves from the
// same heap: blocks may be freed through either. Under a sanitizer it is the sanitizer's malloc, as
// everywhere. Not for signal handlers. docs/allocator.md, "Bad frees", says how a bad free ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bedplate {

// A block of at least `bytes`, not zeroed, or nullptr when the heap, or what the thread's owner may
// have of it (heap_owner.h), is exhausted; errno says nothing then.
// Requires: `alignment` is a power of two. Ownership: the caller's, until pool_free. Threads: any.
void* pool_allocate(std::size_t bytes, std::size_t alignment) noexcept;

// As realloc; 0 bytes are a request like any other, never a free. nullptr: exhausted, and `block`
// stays valid. An alignment beyond alignof(max_align_t) is not kept. Threads: any.
void* pool_reallocate(void* block, std::size_t bytes) noexcept;

// nullptr is allowed. Threads: any, not only the one that allocated.
void pool_free(void* block) noexcept;

// How much of `block` may be used: at least what was asked for; 0 for nullptr. Threads: any.
std::size_t pool_usable_bytes(const void* block) noexcept;

// Called when less than `free_bytes` of the heap are free: once, until there was more again, and
// for each request that cannot be met. It should shed load: what it frees may still save the
// request. By any thread, within its malloc; it may allocate, but not wait for other threads.
// nullptr: nobody. Threads: call it before others allocate. Under
// a sanitizer nobody is called.
using LowMemoryHandler = void (*)(void* context);
void set_low_memory_handler(std::uint64_t free_bytes, LowMemoryHandler handler,
                            void* context) noexcept;

}  // namespace bedplate
