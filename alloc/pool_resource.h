// The pool's heap for C++ containers: a std::pmr::memory_resource, and the throwing function that
// it shares with pool_allocator.h.
//
// The explicit interface throws here and not in operator_new.cc: that file is in
// libbedplate-malloc.a, and users of the explicit interface need not link it.
#pragma once

#include <cstddef>
#include <memory_resource>

#include "platform/version.h"

namespace bedplate {

// As pool_allocate (pool_heap.h), but throws std::bad_alloc where that returns nullptr. In a
// program without exceptions the throw ends the process: call pool_allocate there.
void* pool_allocate_or_throw(std::size_t bytes, std::size_t alignment);

// Throws std::bad_array_new_length, as [allocator.requirements] demands if a product overflows.
[[noreturn]] void throw_bad_array_new_length();

// The resource of the pool's heap. The process has one, and never destroys it.
// Errors: allocate throws std::bad_alloc. Threads: any.
std::pmr::memory_resource* pool_resource() noexcept;

}  // namespace bedplate
