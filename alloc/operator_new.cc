// operator new and delete on the pool's heap. Only this file and pool_resource.cc throw.
//
// [new.delete]: if new finds no memory, it calls the new-handler and tries again. If there is no
// new-handler, it throws bad_alloc. The nothrow forms return nullptr instead of throwing.
#include <cstddef>
#include <new>

#include "alloc/heap_calls.h"
#include "alloc/interception.h"

using bedplate::heap_allocate;
using bedplate::heap_allocate_aligned;
using bedplate::heap_free;

namespace {

// heap_allocate guarantees only this alignment: its smallest blocks have one word. A caller that
// requests a larger alignment gets it from heap_allocate_aligned, even 16, the default of new.
// Otherwise new (align_val_t{16}) of one byte could return a block aligned to 8.
constexpr std::size_t kWordAlignment = alignof(void*);

inline void* try_allocate(std::size_t bytes, std::size_t alignment) noexcept {
  return bedplate::handed_out(
      alignment <= kWordAlignment ? heap_allocate(bytes) : heap_allocate_aligned(bytes, alignment));
}

__attribute__((noinline)) void* retry_or_throw(std::size_t bytes, std::size_t alignment) {
  for (;;) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    if (void* block = try_allocate(bytes, alignment)) return block;
  }
}

inline void* allocate(std::size_t bytes, std::size_t alignment = kWordAlignment) {
  void* block = try_allocate(bytes, alignment);
  return __builtin_expect(block != nullptr, 1) ? block : retry_or_throw(bytes, alignment);
}

inline void* allocate_nothrow(std::size_t bytes, std::size_t alignment = kWordAlignment) noexcept {
  try {
    return allocate(bytes, alignment);
  } catch (...) {
    return nullptr;
  }
}

inline std::size_t number(std::align_val_t alignment) noexcept {
  return static_cast<std::size_t>(alignment);
}

inline void free_sized(void* block, std::size_t bytes,
                       [[maybe_unused]] std::size_t alignment = kWordAlignment) noexcept {
#if BP_DEBUG
  if (block != nullptr && bedplate::owns_heap() && bedplate::ledger_has(block)) {
    const std::size_t has_bytes = bedplate::heap_usable_bytes(block);
    const std::size_t needs_bytes = bytes == 0 ? kWordAlignment : bytes;
    const bool fits =
        alignment <= kWordAlignment ? has_bytes == needs_bytes : has_bytes >= needs_bytes;
    if (!fits) bedplate::report_bad_size(block, bytes);
  }
#else
  (void)bytes;
#endif
  heap_free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate_nothrow(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate_nothrow(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, number(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, number(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate_nothrow(bytes, number(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return allocate_nothrow(bytes, number(alignment));
}

// mimalloc finds a block's size and alignment from its address, so all forms of delete free a block
// the same way. Debug builds also check a sized delete: mimalloc keeps the requested size there,
// and the size passed to delete must equal it. An aligned block may be larger than requested, so
// delete only checks that the block has at least the passed size.
void operator delete(void* block) noexcept { heap_free(block); }
void operator delete[](void* block) noexcept { heap_free(block); }
void operator delete(void* block, std::size_t bytes) noexcept { free_sized(block, bytes); }
void operator delete[](void* block, std::size_t bytes) noexcept { free_sized(block, bytes); }
void operator delete(void* block, const std::nothrow_t&) noexcept { heap_free(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { heap_free(block); }
void operator delete(void* block, std::align_val_t) noexcept { heap_free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { heap_free(block); }
void operator delete(void* block, std::size_t bytes, std::align_val_t alignment) noexcept {
  free_sized(block, bytes, number(alignment));
}
void operator delete[](void* block, std::size_t bytes, std::align_val_t alignment) noexcept {
  free_sized(block, bytes, number(alignment));
}
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  heap_free(block);
}
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  heap_free(block);
}
