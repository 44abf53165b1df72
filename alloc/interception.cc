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

#include "alloc/interception.h"
#include "mimalloc.h"
#include "platform/units.h"

using bedplate::handed_out;

// Takes memory_calls.cc out of the archive with this file.
extern "C" const char bedplate_memory_calls;
[[gnu::used]] static const char* const the_memory_calls = &bedplate_memory_calls;

static constexpr size_t kPage = 4 * bedplate::kKiB;

// mimalloc sets errno where it looked for memory in vain, not where it saw at once that a request
// cannot be met: a product that overflows, an alignment that is none.
static void* served(void* block, int refusal = ENOMEM) noexcept {
  if (block == nullptr) errno = refusal;
  return handed_out(block);
}

static int refusal_of(size_t alignment) noexcept {
  return bedplate::is_power_of_two(alignment) ? ENOMEM : EINVAL;
}

extern "C" {

void* malloc(size_t bytes) noexcept { return handed_out(mi_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) noexcept { return served(mi_calloc(count, bytes)); }
void* realloc(void* block, size_t bytes) noexcept {
  return handed_out(mi_realloc(block, bytes));
}
void* reallocarray(void* block, size_t count, size_t bytes) noexcept {
  return handed_out(mi_reallocarray(block, count, bytes));
}
void free(void* block) noexcept { mi_free(block); }
void cfree(void* block) noexcept { mi_free(block); }

void* memalign(size_t alignment, size_t bytes) noexcept {
  return served(mi_memalign(alignment, bytes), refusal_of(alignment));
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return served(mi_aligned_alloc(alignment, bytes), refusal_of(alignment));
}
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  const int outcome = mi_posix_memalign(block, alignment, bytes);
  if (outcome == 0) handed_out(*block);
  return outcome;
}
void* valloc(size_t bytes) noexcept { return served(mi_memalign(kPage, bytes)); }
void* pvalloc(size_t bytes) noexcept {
  if (bytes > SIZE_MAX - kPage) {
    errno = ENOMEM;
    return nullptr;
  }
  return served(mi_memalign(kPage, bedplate::align_up(bytes, kPage)));
}
size_t malloc_usable_size(void* block) noexcept { return mi_usable_size(block); }

// There is nothing to tune and nothing to trim: memory never goes back.
int mallopt(int, int) noexcept { return 0; }
int malloc_trim(size_t) noexcept { return 0; }
struct mallinfo mallinfo() noexcept { return {}; }
struct mallinfo2 mallinfo2() noexcept { return {}; }
void malloc_stats() noexcept {}
int malloc_info(int, FILE*) noexcept {
  errno = ENOSYS;
  return -1;
}

}  // extern "C"
