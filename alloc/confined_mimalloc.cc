// mimalloc, confined to the pool.
//
// This is mimalloc itself, compiled from the distribution's source package as one translation unit
// of ours, so that the few places where it would talk to the system can be turned to the pool:
// mmap takes from a small metadata zone in segment 0, munmap gives back to it, madvise and
// mprotect do nothing. Everything else comes from arenas that lie in the pool: segment 0 from the
// first malloc on, the heap segment once it is reserved. (Where the decision is "no", the one arena
// is ordinary memory.) mimalloc may not ask the system for more
// (limit_os_alloc), reads no environment (MI_NO_GETENV) and keeps no cache of freed segments
// (MI_CACHE_DISABLE), so what is free shows as free in the arenas.
//
// No code of mimalloc's is in this repository; scripts/mimalloc.sh fetches and adjusts it.
#include <cstdint>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc/confined_heap.h"
#include "alloc/fork_mark.h"
#include "alloc/heap_calls.h"
#include "alloc/interception.h"
#include "alloc/interception_decision.h"
#include "alloc/metadata_zone.h"
#include "alloc/ordinary_memory.h"
#include "alloc/pool_heap.h"
#include "pinned_pool/boot_segment.h"
#include "platform/cache_line.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wextra"
#include "mimalloc.h"
#include "mimalloc-internal.h"

#include "stats.c"
#include "random.c"

// The system calls of os.c, and only of os.c, go to the pool.
#define mmap(address, bytes, rights, flags, fd, offset) \
  bedplate::metadata_zone_map(bytes)
#define munmap(address, bytes) bedplate::metadata_zone_unmap(address, bytes)
#define madvise(address, bytes, advice) 0
#define mprotect(address, bytes, rights) 0
// init.c calls _mi_os_init at the first allocation of the process: the moment to hand the pool
// over. os.c's own keeps its name with a prefix.
#define _mi_os_init bp_unconfined_os_init
#include "os.c"
#undef mmap
#undef munmap
#undef madvise
#undef mprotect
#undef _mi_os_init

#include "bitmap.c"
#include "arena.c"
#include "segment-cache.c"
#include "segment.c"
#include "page.c"
#include "heap.c"
#include "alloc.c"
#include "alloc-aligned.c"
#include "alloc-posix.c"
void _mi_os_init(void);
// What a thread leaves behind when it ends is its heap's to tidy up, in the heap's owner only.
static void mi_pthread_done(void* heap);
static void bp_thread_done(void* heap) {
  if (!bedplate::is_forked_child()) mi_pthread_done(heap);
}
#define pthread_key_create(key, destructor) pthread_key_create(key, &bp_thread_done)
#include "init.c"
#undef pthread_key_create
#include "options.c"
#pragma GCC diagnostic pop

static_assert(MI_SEGMENT_SIZE == bedplate::kHeapGranularityBytes,
              "the plan rounds heaps to mimalloc's segment");
static_assert(bedplate::kPoolBase + bedplate::kPoolSpanBytes <= MI_MAX_ADDRESS,
              "mimalloc's segment map covers the pool: its checks in debug builds ask it");

namespace bedplate {
namespace {

std::atomic<ExhaustionHandler> exhaustion_handler{nullptr};

void discard_output(const char*, void*) {}

void on_error(int error_number, void*) {
  if (error_number != ENOMEM && error_number != EOVERFLOW) return;
  errno = ENOMEM;
  if (const auto handler = exhaustion_handler.load(std::memory_order_relaxed)) handler();
}

void confine_options() noexcept {
  mi_option_set(mi_option_limit_os_alloc, 1);
  mi_option_set(mi_option_page_reset, 0);
  mi_option_set(mi_option_abandoned_page_decommit, 0);
  mi_option_set(mi_option_allow_decommit, 0);
  mi_option_set(mi_option_eager_commit_delay, 0);
  mi_option_set(mi_option_use_numa_nodes, 1);
  mi_option_set(mi_option_show_errors, BP_DEBUG);
  mi_register_error(&on_error, nullptr);
  if (!BP_DEBUG) mi_register_output(&discard_output, nullptr);
}

const mi_arena_t* arena_at(uint32_t index) noexcept {
  BP_ASSERT(index < mi_atomic_load_relaxed(&mi_arena_count));
  return mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[index]);
}

bool is_in_pool() noexcept { return interception_decision().place != HeapPlace::kOrdinary; }

bool add_arena(std::span<std::byte> memory) noexcept {
  // committed, not "large" (which would reserve it for allocations that ask for large pages),
  // already zero, any node, for everybody.
  return mi_manage_os_memory_ex(memory.data(), memory.size(), true, false, true, -1, false,
                                nullptr);
}

// What the heap begins with: the arena, and behind it the metadata zone (arenas must begin at a
// multiple of mimalloc's segment).
struct FirstMemory {
  std::span<std::byte> arena;
  std::span<std::byte> zone;
};

FirstMemory first_memory_in_pool() noexcept {
  Segment& boot = boot_segment();
  FirstMemory first;
  first.arena = process_pool().carve(boot, "boot", boot.bytes - kMetadataZoneBytes);
  first.zone = process_pool().carve(boot, "metadata", kMetadataZoneBytes);
  return first;
}

FirstMemory first_ordinary_memory() noexcept {
  const std::span<std::byte> memory = reserve_ordinary_memory();
  return {memory.first(memory.size() - kMetadataZoneBytes), memory.last(kMetadataZoneBytes)};
}

}  // namespace

void heap_create() noexcept { mi_process_init(); }

bool add_heap_memory(std::span<std::byte> memory) noexcept {
  return !is_in_pool() || add_arena(memory);
}

void retire_boot_heap() noexcept {
  if (!is_in_pool()) return;
  // An exclusive arena serves only those who ask for it by number, which nobody does.
  mi_arena_t* boot_arena = mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[0]);
  if (boot_arena != nullptr) boot_arena->exclusive = true;
}

uint32_t heap_arena_count() noexcept {
  return static_cast<uint32_t>(mi_atomic_load_relaxed(&mi_arena_count));
}

HeapArenaUse heap_arena_use(uint32_t index) noexcept {
  const mi_arena_t* arena = arena_at(index);
  HeapArenaUse use;
  use.address = reinterpret_cast<const std::byte*>(mi_atomic_load_relaxed(&arena->start));
  use.bytes = arena->block_count * MI_ARENA_BLOCK_SIZE;
  size_t blocks = 0;
  for (size_t i = 0; i < arena->field_count; ++i) {
    const auto field = mi_atomic_load_relaxed(&arena->blocks_inuse[i]);
    blocks += static_cast<size_t>(__builtin_popcountll(field));
  }
  // Bits past the arena's end are set at creation, so that they are never handed out.
  blocks -= arena->field_count * MI_BITMAP_FIELD_BITS - arena->block_count;
  use.used_bytes = blocks * MI_ARENA_BLOCK_SIZE;
  return use;
}

void set_exhaustion_handler(ExhaustionHandler handler) noexcept {
  exhaustion_handler.store(handler, std::memory_order_relaxed);
}

// What a block of any size has is one word (operator_new.cc): more has to be asked for.
void* pool_allocate(size_t bytes, size_t alignment) noexcept {
  return handed_out(alignment <= alignof(void*) ? heap_allocate(bytes)
                                                : heap_allocate_aligned(bytes, alignment));
}

void* pool_reallocate(void* block, size_t bytes) noexcept {
  return handed_out(heap_reallocate(block, bytes));
}

void pool_free(void* block) noexcept { heap_free(block); }

size_t pool_usable_bytes(const void* block) noexcept { return heap_usable_bytes(block); }

}  // namespace bedplate

void _mi_os_init(void) {
  using namespace bedplate;
  bp_unconfined_os_init();
  confine_options();
  if (is_in_pool()) {
    mark_heap_owner();
  } else {
    mark_heap_private();
  }
  const FirstMemory first = is_in_pool() ? first_memory_in_pool() : first_ordinary_memory();
  metadata_zone_create(first.zone);
  const bool added = add_arena(first.arena);
  BP_ASSERT(added);
}
