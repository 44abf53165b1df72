// The pool's heap for C++ containers: a std::pmr::memory_resource, and the throwing function that
// it shares with pool_allocator.h.
//
// The explicit interface throws here and not in operator_new.cc: that is in libbedplate-malloc.a,
// which its users do not link.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace bedplate {

// As pool_allocate (freed by pool_free, any thread), but throws std::bad_alloc if the heap is
// exhausted. In a program without exceptions the throw ends the process: call pool_allocate there.
void* pool_allocate_or_throw(std::size_t bytes, std::size_t alignment);

// For a product that overflows, as [allocator.requirements] demands.
[[noreturn]] void throw_bad_array_new_length();

// The resource of the pool's heap: one for the process, never destroyed.
// Errors: allocate throws std::bad_alloc. Threads: any.
std::pmr::memory_resource* pool_resource() noexcept;

}  // namespace bedplate
