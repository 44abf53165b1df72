// The pool's heap for C++ containers: a std::pmr::memory_resource, and the function that it and
// pool_allocator.h share.
//
// The explicit interface throws here. It cannot throw in operator_new.cc: that is in
// libbedplate-malloc.a, and users of the explicit interface do not link it.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace bedplate {

// As pool_allocate (freed by pool_free, any thread), but throws std::bad_alloc when the heap is
// exhausted. In a program without exceptions that ends the process: call pool_allocate there.
void* pool_allocate_or_throw(std::size_t bytes, std::size_t alignment);

// For products that overflow, as [allocator.requirements] wants it.
[[noreturn]] void throw_bad_array_new_length();

// The resource whose memory is the pool's heap: one for the process, never destroyed.
// Errors: allocate throws std::bad_alloc. Threads: any.
std::pmr::memory_resource* pool_resource() noexcept;

}  // namespace bedplate
