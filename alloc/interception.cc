// The malloc family of a program whose whole heap lies in the pool.
//
// Linking libbedplate-malloc.a puts these in front of libc's. Each is a jump to mimalloc; in debug
// builds every pointer is checked to lie in the pool before it is handed out. libc's malloc.o must
// not come in beside them, so the odd functions that only it defines are here as well.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <malloc.h>

#include "alloc/heap_calls.h"
#include "alloc/interception.h"
#include "platform/units.h"

using namespace bedplate;

// Tells the decision (interception_decision.cc) that this archive is linked.
extern "C" const char bedplate_malloc_is_linked = 1;

// Takes memory_calls.cc out of the archive with this file.
extern "C" const char bedplate_memory_calls;
[[gnu::used]] static const char* const the_memory_calls = &bedplate_memory_calls;

static constexpr size_t kPage = 4 * kKiB;

// mimalloc sets errno where it looked for memory in vain, not where it saw at once that a request
// cannot be met: a product that overflows, an alignment that is none.
static void* served(void* block, int refusal = ENOMEM) noexcept {
  if (block == nullptr) errno = refusal;
  return handed_out(block);
}

extern "C" {

void* malloc(size_t bytes) noexcept { return handed_out(heap_allocate(bytes)); }
void* calloc(size_t count, size_t bytes) noexcept {
  return served(heap_allocate_zeroed(count, bytes));
}
void* realloc(void* block, size_t bytes) noexcept {
  return handed_out(heap_reallocate(block, bytes));
}
void* reallocarray(void* block, size_t count, size_t bytes) noexcept {
  size_t total = 0;
  if (__builtin_mul_overflow(count, bytes, &total)) return served(nullptr);
  return handed_out(heap_reallocate(block, total));
}
void free(void* block) noexcept { heap_free(block); }
void cfree(void* block) noexcept { heap_free(block); }

void* memalign(size_t alignment, size_t bytes) noexcept {
  if (!is_power_of_two(alignment)) return served(nullptr, EINVAL);
  return served(heap_allocate_aligned(bytes, alignment));
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int errno_before = errno;  // [posix_memalign] leaves it alone
  void* aligned = heap_allocate_aligned(bytes, alignment);
  errno = errno_before;
  if (aligned == nullptr) return ENOMEM;
  *block = handed_out(aligned);
  return 0;
}
void* valloc(size_t bytes) noexcept { return memalign(kPage, bytes); }
void* pvalloc(size_t bytes) noexcept {
  if (bytes > SIZE_MAX - kPage) {
    errno = ENOMEM;
    return nullptr;
  }
  return memalign(kPage, align_up(bytes, kPage));
}
size_t malloc_usable_size(void* block) noexcept { return heap_usable_bytes(block); }

// There is nothing to tune and nothing to trim: memory never goes back.
int mallopt(int, int) noexcept { return 0; }
int malloc_trim(size_t) noexcept { return 0; }
struct mallinfo mallinfo() noexcept {
  return {};
}
struct mallinfo2 mallinfo2() noexcept {
  return {};
}
void malloc_stats() noexcept {}
int malloc_info(int, FILE*) noexcept {
  errno = ENOSYS;
  return -1;
}

}  // extern "C"
