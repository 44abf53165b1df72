// Compiled with exceptions and RTTI (scripts/mk/flags.mk): this file throws bad_alloc, and programs
// with RTTI may ask for the resource's type.
#include "alloc/pool_resource.h"

#include <new>

#include "alloc/pool_heap.h"

namespace bedplate {
namespace {

class PoolResource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return pool_allocate_or_throw(bytes, alignment);
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override { pool_free(block); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

void* pool_allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* block = pool_allocate(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void throw_bad_array_new_length() { throw std::bad_array_new_length(); }

std::pmr::memory_resource* pool_resource() noexcept {
  // Never destroyed: containers with static storage may be destroyed in any order.
  alignas(PoolResource) static std::byte memory[sizeof(PoolResource)];
  static PoolResource* const resource = ::new (memory) PoolResource;
  return resource;
}

}  // namespace bedplate
