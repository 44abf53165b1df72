// The malloc family of a program whose whole heap lies in the pool.
//
// Linking libbedplate-malloc.a puts these functions before libc's. Each is a jump to mimalloc;
// debug builds check that every pointer lies in the pool before it is handed out. They keep glibc's
// extensions to the standard, because programs rely on them. libc's malloc.o must not be linked
// beside them, so the rare functions that only it defines are here as well.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc/heap_calls.h"
#include "alloc/heap_report.h"
#include "alloc/interception.h"
#include "platform/units.h"

using namespace bedplate;

// Its presence tells interception_decision.cc that this archive is linked.
extern "C" const char bedplate_malloc_is_linked = 1;

// Makes the linker take memory_calls.cc and fork_calls.cc out of the archive with this file.
extern "C" const char bedplate_memory_calls;
extern "C" const char bedplate_fork_calls;
[[gnu::used]] static const char* const the_other_calls[] = {&bedplate_memory_calls,
                                                            &bedplate_fork_calls};

static constexpr size_t kPage = 4 * kKiB;

// mimalloc sets errno if it finds no memory, but not for requests that it rejects at once: a
// product that overflows, an invalid alignment.
static void* served(void* block, int refusal = ENOMEM) noexcept {
  if (block == nullptr) errno = refusal;
  return handed_out(block);
}

// The largest power of two: larger alignments are invalid.
static constexpr size_t kAlignmentMax = SIZE_MAX / 2 + 1;

// Makes the system call itself: libc's write is a cancellation point, and malloc_stats must not be
// one.
static void write_all(const char* text) noexcept {
  for (size_t left = std::strlen(text); left > 0;) {
    const long written = syscall(SYS_write, STDERR_FILENO, text, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text += written;
    left -= static_cast<size_t>(written);
  }
}

extern "C" {

void* malloc(size_t bytes) noexcept { return handed_out(heap_allocate(bytes)); }
void* calloc(size_t count, size_t bytes) noexcept {
  return served(heap_allocate_zeroed(count, bytes));
}
// A size of 0 frees the block and returns nullptr.
void* realloc(void* block, size_t bytes) noexcept {
  if (bytes == 0 && block != nullptr) {
    heap_free(block);
    return nullptr;
  }
  return handed_out(heap_reallocate(block, bytes));
}
void* reallocarray(void* block, size_t count, size_t bytes) noexcept {
  size_t total = 0;
  if (__builtin_mul_overflow(count, bytes, &total)) return served(nullptr);
  return realloc(block, total);
}
void free(void* block) noexcept { heap_free(block); }
void cfree(void* block) noexcept { heap_free(block); }

// An alignment that is no power of two is rounded up to one.
void* memalign(size_t alignment, size_t bytes) noexcept {
  if (alignment > kAlignmentMax) return served(nullptr, EINVAL);
  return served(heap_allocate_aligned(bytes, std::bit_ceil(alignment)));
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  if (!is_power_of_two(alignment)) return served(nullptr, EINVAL);
  return served(heap_allocate_aligned(bytes, alignment));
}
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* aligned = heap_allocate_aligned(bytes, alignment);
  if (aligned == nullptr) {
    errno = ENOMEM;  // POSIX leaves errno open; glibc sets it
    return ENOMEM;
  }
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

// Accepts glibc's parameters, without effect, so that programs that check the result go on.
int mallopt(int parameter, int) noexcept {
  return parameter >= M_ARENA_MAX && parameter <= M_KEEP && parameter != 0 ? 1 : 0;
}
// Nothing can be trimmed: memory never goes back to the system.
int malloc_trim(size_t) noexcept { return 0; }

struct mallinfo2 mallinfo2() noexcept {
  const HeapTotals totals = heap_totals();
  struct mallinfo2 told = {};
  told.arena = totals.bytes;
  told.ordblks = totals.free_piece_count;
  told.uordblks = totals.used_bytes;
  told.fordblks = totals.bytes - totals.used_bytes;
  return told;
}
struct mallinfo mallinfo() noexcept {
  const auto narrow = [](size_t figure) noexcept {
    return static_cast<int>(std::min<size_t>(figure, INT_MAX));
  };
  const struct mallinfo2 wide = mallinfo2();
  struct mallinfo told = {};
  told.arena = narrow(wide.arena);
  told.ordblks = narrow(wide.ordblks);
  told.uordblks = narrow(wide.uordblks);
  told.fordblks = narrow(wide.fordblks);
  return told;
}
void malloc_stats() noexcept {
  const int errno_before = errno;
  char text[kHeapStatisticsBytesMax];
  write_all(format_heap_statistics(heap_totals(), text, sizeof text));
  errno = errno_before;
}
int malloc_info(int flags, FILE* stream) noexcept {
  if (flags != 0) return EINVAL;
  char text[kHeapDescriptionBytesMax];
  return std::fputs(describe_heap(text, sizeof text), stream) < 0 ? -1 : 0;
}

}  // extern "C"
