// mimalloc, confined to the pool.
//
// This is mimalloc itself, compiled from the distribution's source package as one translation unit
// of ours, so that its few calls to the system can be redirected to the pool: mmap takes from a
// small metadata zone in segment 0, munmap gives back to it, madvise and mprotect do nothing. All
// other memory comes from arenas in the pool: segment 0 from the first malloc on, the heap segment
// once it is reserved. (If the decision is "no", the one arena is ordinary memory.) mimalloc may
// not ask the system for more (limit_os_alloc), reads no environment (MI_NO_GETENV) and keeps no
// cache of freed segments (MI_CACHE_DISABLE), so free memory shows as free in the arenas.
//
// No code of mimalloc's is in this repository; scripts/mimalloc.sh fetches and adjusts it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc/bad_pointer.h"
#include "alloc/boot_growth.h"
#include "alloc/child_libc.h"
#include "alloc/confined_heap.h"
#include "alloc/copied_heap.h"
#include "alloc/exhaustion.h"
#include "alloc/fork_mark.h"
#include "alloc/heap_calls.h"
#include "alloc/heap_owner.h"
#include "alloc/interception.h"
#include "alloc/interception_decision.h"
#include "alloc/metadata_zone.h"
#include "alloc/ordinary_memory.h"
#include "alloc/pool_heap.h"
#include "alloc/thread_heaps.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/fork_rule.h"
#include "platform/cache_line.h"
#include "platform/log.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wextra"
#include "mimalloc.h"
#include "mimalloc-internal.h"

// free and malloc inline these fast paths (intercepting_heap.cc). Other code calls them, so they
// are not declared `inline`.
#pragma GCC diagnostic ignored "-Wattributes"
extern "C" [[gnu::always_inline]] void mi_free(void* block) mi_attr_noexcept;
[[gnu::always_inline]] static inline uint8_t mi_bin(size_t bytes);
[[gnu::always_inline]] void* _mi_page_malloc(mi_heap_t* heap, mi_page_t* page, size_t bytes,
                                             bool is_zeroed) mi_attr_noexcept;

#include "stats.c"
#include "random.c"

// Redirects the system calls of os.c, and only of os.c, to the pool.
#define mmap(address, bytes, rights, flags, fd, offset) bedplate::metadata_zone_map(bytes)
#define munmap(address, bytes) bedplate::metadata_zone_unmap(address, bytes)
#define madvise(address, bytes, advice) 0
#define mprotect(address, bytes, rights) 0
// init.c calls _mi_os_init at the first allocation of the process: the moment to hand the pool
// over. os.c's own function gets a prefix.
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
#include "alloc/aligned_arena.h"

// The only place where mimalloc takes segments from the arenas. If segment 0 may grow, it grows
// before a request is refused.
static void* bp_take_segment(size_t bytes, size_t alignment, size_t align_offset, bool* commit,
                             bool* large, bool* is_pinned, bool* is_zero, mi_arena_id_t arena,
                             size_t* memid, mi_os_tld_t* tld) {
  const bool wants_commit = *commit;
  const bool wants_large = *large;
  for (;;) {
    void* segment = bp_arena_alloc_aligned(bytes, alignment, align_offset, commit, large, is_pinned,
                                           is_zero, arena, memid, tld);
    if (segment != nullptr || arena != _mi_arena_id_none()) return segment;
    if (!bedplate::grow_boot_heap(bytes)) return nullptr;
    *commit = wants_commit;
    *large = wants_large;
  }
}

// The only place where mimalloc takes pages of blocks from its segments.
static void bp_page_given_back(mi_page_t* page);
#define _mi_segment_page_alloc bp_take_page
#define mi_heap_get_default() bedplate::heap_of_thread()
#define _mi_arena_alloc_aligned bp_take_segment
#include "segment.c"
#undef _mi_arena_alloc_aligned
#undef _mi_segment_page_alloc
#undef mi_heap_get_default

// A refused thread collects its own heaps, then the heaps of idle threads.
static void bp_collect_for_refused(mi_heap_t* heap, bool force);
#define mi_heap_collect bp_collect_for_refused
// mimalloc rounds large requests up, to multiples of 4 MiB in the end, to spare the system. For the
// pool that is useless, and with the header a block would take one unit of the arena too many.
#define _mi_os_good_alloc_size(bytes) _mi_align_up(bytes, MI_SEGMENT_SLICE_SIZE)
#define mi_thread_init()
#define mi_get_default_heap() bedplate::heap_of_thread()
// The number of further page requests for which an empty page stays with its heap, if the heap has
// no other of its size: the same as in mimalloc.
static inline uint8_t bp_retire_cycles(const mi_page_t* page) {
  return page->xblock_size <= MI_SMALL_OBJ_SIZE_MAX ? 9 : 3;
}
// Whether an empty page stays for another period; restarts the period.
static inline bool bp_page_stays(mi_page_t* page) {
  if (page->retire_expire == 0 || page->next != nullptr || page->prev != nullptr) return false;
  page->retire_expire = bp_retire_cycles(page);
  return true;
}
#include "page.c"
#undef mi_heap_collect
#undef _mi_os_good_alloc_size
#include "heap.c"
#undef mi_thread_init
#undef mi_get_default_heap
static void bp_collect_for_refused(mi_heap_t* heap, bool force) {
  bedplate::HeapOwner owner;
  const bool is_at_limit = bedplate::was_refused_by_limit(&owner);
  {
    const bedplate::WithoutReclaim without(*heap);
    mi_heap_collect(heap, force);
  }
  for (mi_heap_t* each = is_at_limit ? nullptr : heap->tld->heaps; each != nullptr;
       each = each->next) {
    if (each == heap) continue;
    const bedplate::InsideHeap inside;  // no low-memory call here: it was made above
    const bedplate::WithoutReclaim without(*each);
    mi_heap_collect(each, force);
  }
  bedplate::empty_idle_heaps(is_at_limit ? owner.index : bedplate::kEveryOwner);
  _mi_abandoned_collect(heap, true, &heap->tld->segments);
}

// This thread's aligned request, while mimalloc allocates a larger block for it.
static __thread bedplate::HeapRefusal bp_asked;
// Reports a request that was refused.
static void bp_refuse(size_t bytes, size_t alignment, bedplate::HeapRefusal::Cause cause) noexcept;

// The slow path, for requests that the first page of their size cannot serve. It is noexcept and a
// function of its own, so that malloc jumps to it and needs no frame.
[[gnu::noinline]] static void* bp_allocate_slowly(mi_heap_t* heap, size_t bytes, bool is_zeroed,
                                                  size_t huge_alignment) noexcept {
  if (bytes > MI_LARGE_OBJ_SIZE_MAX || huge_alignment > 0) {
    // The check below needs the heap's size, so the heap must exist.
    if (!mi_heap_is_initialized(heap)) heap = bedplate::heap_of_thread();
    using Cause = bedplate::HeapRefusal::Cause;
    const bool is_far = huge_alignment > bedplate::kAlignmentBytesMax;
    if (is_far || (!bedplate::could_ever_serve(bytes, huge_alignment) &&
                   !bedplate::grow_boot_heap_for(bytes, huge_alignment))) {
      bp_refuse(bytes, huge_alignment, is_far ? Cause::kAlignment : Cause::kNeverFits);
      return nullptr;
    }
  }
  void* block = _mi_malloc_generic(heap, bytes, is_zeroed, huge_alignment);
  if (block == nullptr) bp_refuse(bytes, huge_alignment, bedplate::HeapRefusal::Cause::kExhausted);
  return block;
}

// mimalloc has a table of pages for blocks of up to 1 KiB, and takes the slow path for all others.
// Storage and streams use larger blocks, so this tries the first page of the size. (The empty heap
// that a thread begins with has no pages.)
static void* bp_allocate_generic(mi_heap_t* heap, size_t bytes, bool is_zeroed,
                                 size_t huge_alignment) noexcept {
  if (bytes > MI_SMALL_SIZE_MAX && bytes <= MI_MEDIUM_OBJ_SIZE_MAX && huge_alignment == 0) {
    mi_page_t* page = heap->pages[mi_bin(bytes)].first;
    if (page != nullptr && page->free != nullptr) {
      return _mi_page_malloc(heap, page, bytes, is_zeroed);
    }
  }
  return bp_allocate_slowly(heap, bytes, is_zeroed, huge_alignment);
}
#define _mi_malloc_generic bp_allocate_generic
#define bp_heap_identity() bedplate::heap_identity
#include "alloc.c"
#undef _mi_malloc_generic
// mimalloc aligns a block by allocating more. For a refusal, bp_asked keeps the requested size.
static void* bp_allocate_more(mi_heap_t* heap, size_t more, bool is_zeroed, size_t huge_alignment,
                              size_t bytes, size_t alignment) {
  bp_asked = {bytes, alignment};
  void* block = _mi_heap_malloc_zero_ex(heap, more, is_zeroed, huge_alignment);
  bp_asked = {};
  return block;
}
#define _mi_heap_malloc_zero(heap, more, zero) \
  bp_allocate_more(heap, more, zero, 0, size, alignment)
#define _mi_heap_malloc_zero_ex(heap, more, zero, huge) \
  bp_allocate_more(heap, more, zero, huge, size, alignment)
#include "alloc-aligned.c"
#undef _mi_heap_malloc_zero
#undef _mi_heap_malloc_zero_ex
#include "alloc-posix.c"
void _mi_os_init(void);
// Cleans up the heap of a thread that ends, but only in the process that owns the heap.
static void mi_pthread_done(void* heap);
static void bp_thread_done(void* heap) {
  if (bedplate::is_forked_child()) return;
  bedplate::heap_of_thread_done();
  mi_pthread_done(heap);
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

std::atomic<ExhaustionHandler> exhaustion_handler{&handle_exhaustion};
std::atomic<bool> is_boot_retired{false};
mi_arena_id_t reserve_arenas[kHeapOwnerCountMax] = {};  // of owners; 0: none

// The bytes of a page that its owner is charged. A huge block has a segment to itself.
size_t page_charge(const mi_page_t* page) noexcept {
  const mi_segment_t* segment = _mi_ptr_segment(page);
  if (segment->kind != MI_SEGMENT_HUGE) return page->slice_count * MI_SEGMENT_SLICE_SIZE;
  return align_up(segment->segment_slices * MI_SEGMENT_SLICE_SIZE, MI_ARENA_BLOCK_SIZE);
}

// The expected charge, before the page exists (segment.c derives the page's size from the block's).
size_t expected_charge(size_t block_bytes, size_t alignment) noexcept {
  if (alignment > MI_ALIGNMENT_MAX) {
    return align_up(block_bytes + MI_SEGMENT_SIZE, MI_ARENA_BLOCK_SIZE);
  }
  if (block_bytes > MI_LARGE_OBJ_SIZE_MAX) {
    return align_up(block_bytes + MI_SEGMENT_SLICE_SIZE, MI_ARENA_BLOCK_SIZE);
  }
  if (block_bytes <= MI_SMALL_OBJ_SIZE_MAX) return MI_SMALL_PAGE_SIZE;
  if (block_bytes <= MI_MEDIUM_OBJ_SIZE_MAX) return MI_MEDIUM_PAGE_SIZE;
  return align_up(block_bytes,
                  block_bytes > MI_MEDIUM_PAGE_SIZE ? MI_MEDIUM_PAGE_SIZE : MI_SEGMENT_SLICE_SIZE);
}

HeapOwner owner_of_page(const mi_page_t* page) noexcept {
  return {static_cast<uint32_t>(page->padding[0])};
}

// Gives `page` to `owner`, which was charged `expected` bytes for it.
void give_page(mi_page_t* page, HeapOwner owner, size_t expected) noexcept {
  page->padding[0] = owner.index;
  settle_heap_charge(owner, expected, page_charge(page));
}

// Pages of a size grow with the number in the heap: each is twice the last one that became full, up
// to four times mimalloc's size. mimalloc's pages all have one size, and a heap with many full ones
// moves pages into the queue of full pages and out again in nearly every call.
constexpr size_t kGrowthMax = 4;
static_assert(kGrowthMax * MI_SMALL_PAGE_SIZE / sizeof(void*) <= UINT16_MAX,
              "a page counts its blocks in 16 bits");
static_assert(kGrowthMax * MI_MEDIUM_PAGE_SIZE <= MI_LARGE_OBJ_SIZE_MAX);
// Below these limits other sizes and threads need the memory more than a larger page.
constexpr uint64_t kGrowthFreeBytesMin = 16 * kMiB;  // of the heap
constexpr uint64_t kGrowthRoomMin = 8;               // of the bytes left to an owner: in such pages

// Returns 0 if the page keeps mimalloc's size.
size_t grown_page_bytes(const mi_heap_t* heap, size_t block_bytes, HeapOwner owner) noexcept {
  if (block_bytes > MI_MEDIUM_OBJ_SIZE_MAX) return 0;
  // The page that became full last is the last in the queue of full pages.
  const mi_page_t* full = heap->pages[MI_BIN_FULL].last;
  if (full == nullptr || full->xblock_size != block_bytes) return 0;
  const size_t page_bytes =
      block_bytes <= MI_SMALL_OBJ_SIZE_MAX ? MI_SMALL_PAGE_SIZE : MI_MEDIUM_PAGE_SIZE;
  const size_t bytes =
      std::min(2 * full->slice_count * MI_SEGMENT_SLICE_SIZE, kGrowthMax * page_bytes);
  const bool has_room = heap_owner_room_bytes(owner) / kGrowthRoomMin >= bytes &&
                        heap_free_bytes() >= kGrowthFreeBytesMin;
  return has_room ? bytes : 0;
}

// Takes a larger page from the segments that the thread already has: it is not worth a new segment.
// Returns nullptr if there is none.
mi_page_t* take_grown_page(mi_heap_t* heap, size_t block_bytes, HeapOwner owner,
                           mi_segments_tld_t* tld) noexcept {
  const size_t bytes = grown_page_bytes(heap, block_bytes, owner);
  if (bytes == 0 || !charge_heap_owner(owner, bytes)) return nullptr;
  mi_page_t* page =
      mi_segments_page_find_and_allocate(bytes / MI_SEGMENT_SLICE_SIZE, heap->arena_id, tld);
  if (page == nullptr) {
    cancel_heap_charge(owner, bytes);
    return nullptr;
  }
  give_page(page, owner, bytes);
  return page;
}

struct LowMemory {
  uint64_t free_bytes = 0;  // 0: no handler
  LowMemoryHandler handler = nullptr;
  void* context = nullptr;
  std::atomic<bool> is_low{false};
  std::atomic<bool> is_due{false};
} low_memory;

// Called after a segment was taken from the arenas.
void watch_free_memory() noexcept {
  if (low_memory.free_bytes == 0) return;
  const bool is_low = heap_free_bytes() < low_memory.free_bytes;
  const bool was_low = low_memory.is_low.exchange(is_low, std::memory_order_relaxed);
  if (is_low && !was_low) low_memory.is_due.store(true, std::memory_order_relaxed);
}

// mimalloc calls this at the beginning of malloc's slow path, and before it searches everywhere for
// a page (`is_refused`): its records are consistent at both points.
void on_slow_path(bool is_refused, unsigned long long, void*) {
  // Not while this thread is inside a heap operation, such as emptying another thread's heaps.
  if (is_inside_heap()) return;
  const bool is_due = low_memory.is_due.load(std::memory_order_relaxed) &&
                      low_memory.is_due.exchange(false, std::memory_order_relaxed);
  if (is_due || (is_refused && heap_free_bytes() < low_memory.free_bytes)) {
    const HeapRefusal asked = std::exchange(bp_asked, {});  // the handler may allocate, too
    low_memory.handler(low_memory.context);
    bp_asked = asked;
  }
}

// Writes mimalloc's messages to stderr, in debug builds only.
void write_output(const char* text, void*) {
  const InsideHeap inside;
  if (BP_DEBUG) (void)!write(STDERR_FILENO, text, std::strlen(text));
}

void on_error(int error_number, void*) {
  const InsideHeap inside;
  if (error_number != ENOMEM && error_number != EOVERFLOW) return report_heap_damage(error_number);
  errno = ENOMEM;  // bp_refuse reports it
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
  mi_register_output(&write_output, nullptr);
}

const mi_arena_t* arena_at(uint32_t index) noexcept {
  BP_ASSERT(index < mi_atomic_load_relaxed(&mi_arena_count));
  return mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[index]);
}

bool is_in_pool() noexcept { return interception_decision().backing != HeapBacking::kOrdinary; }

bool add_arena(std::span<std::byte> memory, bool is_exclusive, mi_arena_id_t* arena) noexcept {
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kHeapGranularityBytes == 0);
  if (kKeepsLedger && !ledger_create(memory)) return false;
  // committed, not "large" (which would reserve it for requests of large pages), already zero, any
  // node.
  return mi_manage_os_memory_ex(memory.data(), memory.size(), true, false, true, -1, is_exclusive,
                                arena);
}

// The heap's first memory: an arena followed by the metadata zone (arenas must begin at a multiple
// of mimalloc's segment size).
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
  return !is_in_pool() || add_arena(memory, false, nullptr);
}

bool add_heap_reserve(std::span<std::byte> memory, HeapOwner owner) noexcept {
  BP_ASSERT(owner.index < heap_owner_count() && reserve_arenas[owner.index] == 0);
  return !is_in_pool() || add_arena(memory, true, &reserve_arenas[owner.index]);
}

void retire_boot_heap() noexcept {
  if (!is_in_pool()) return;
  // An exclusive arena serves only requests with its number, and no request names this one.
  const Segment& boot = boot_segment();
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    mi_arena_t* arena = mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[i]);
    const auto* start = reinterpret_cast<const std::byte*>(mi_atomic_load_relaxed(&arena->start));
    if (static_cast<uint64_t>(start - boot.address) < boot.bytes) arena->exclusive = true;
  }
  is_boot_retired.store(true, std::memory_order_relaxed);
}

void leave_boot_heap() noexcept {
  if (!is_in_pool()) return;
  // With this bit in a segment's memid, threads cut no pages for general use from the segment.
  constexpr size_t kExclusiveBit = 0x80;
  mi_segments_tld_t& segments = mi_heap_get_default()->tld->segments;
  for (const mi_span_queue_t& spans : segments.spans) {
    for (mi_slice_t* span = spans.first; span != nullptr; span = span->next) {
      _mi_ptr_segment(span)->memid |= kExclusiveBit;
    }
  }
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

bool heap_arena_is_open(uint32_t index) noexcept { return !arena_at(index)->exclusive; }

bool heap_unit_is_used(uint32_t index, uint64_t unit) noexcept {
  const mi_arena_t* arena = arena_at(index);
  BP_ASSERT(unit < arena->block_count);
  const auto field = mi_atomic_load_relaxed(&arena->blocks_inuse[unit / MI_BITMAP_FIELD_BITS]);
  return ((field >> (unit % MI_BITMAP_FIELD_BITS)) & 1) != 0;
}

void forget_segment_readers() noexcept { mi_atomic_store_release(&abandoned_readers, 0); }

uint64_t heap_block_bytes_max() noexcept {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    if (heap_arena_is_open(i)) bytes = std::max(bytes, heap_arena_use(i).bytes);
  }
  return bytes - std::min<uint64_t>(bytes, MI_SEGMENT_SLICE_SIZE);
}

uint64_t heap_free_bytes() noexcept {
  uint64_t free_bytes = 0;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    if (!heap_arena_is_open(i)) continue;
    const HeapArenaUse use = heap_arena_use(i);
    free_bytes += use.bytes - use.used_bytes;
  }
  return free_bytes;
}

void set_low_memory_handler(uint64_t free_bytes, LowMemoryHandler handler, void* context) noexcept {
  mi_register_deferred_free(handler != nullptr ? &on_slow_path : nullptr, nullptr);
  low_memory.handler = handler;
  low_memory.context = context;
  low_memory.free_bytes = handler != nullptr ? free_bytes : 0;
  low_memory.is_low.store(false, std::memory_order_relaxed);
  watch_free_memory();
}

HeapSizeClass heap_size_class_at(const void* pointer) noexcept {
  const mi_segment_t* segment = _mi_ptr_segment(pointer);
  // A good cookie shows that mimalloc made a segment there; the segment's other fields may be
  // stale.
  if (segment->cookie != _mi_ptr_cookie(segment)) return {};
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) -
                                          reinterpret_cast<const std::byte*>(segment));
  const size_t index = offset >> MI_SEGMENT_SLICE_SHIFT;
  if (index >= segment->slice_entries || index > MI_SLICES_PER_SEGMENT) return {};
  const mi_slice_t& slice = segment->slices[index];
  if (slice.slice_offset > index * sizeof(mi_slice_t)) return {};
  const auto* page = reinterpret_cast<const mi_page_t*>(reinterpret_cast<const std::byte*>(&slice) -
                                                        slice.slice_offset);
  if (page->xblock_size == 0) return {};
  HeapSizeClass found;
  found.bytes = mi_page_block_size(page);
  const uint8_t* first = _mi_page_start(segment, page, nullptr);
  found.offset_bytes =
      static_cast<size_t>(static_cast<const uint8_t*>(pointer) - first) % found.bytes;
  return found;
}

void set_exhaustion_handler(ExhaustionHandler handler) noexcept {
  exhaustion_handler.store(handler, std::memory_order_relaxed);
}

// Every block is aligned to one word (operator_new.cc); larger alignments go to the aligned call.
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
  const bool is_shared = is_in_pool() && fork_rule() != ForkRule::kCopy;
  if (is_shared) {
    if (auto marked = mark_heap_owner(); !marked.ok()) stop_with(marked.error());
    guard_libc_from_children();
  } else {
    mark_heap_private();
    keep_copies_whole();
  }
  const FirstMemory first = is_in_pool() ? first_memory_in_pool() : first_ordinary_memory();
  metadata_zone_create(first.zone);
  if (is_shared) share_child_notice(metadata_zone_map(sizeof(bool)));
  const bool added = add_arena(first.arena, false, nullptr);
  BP_ASSERT(added);
}

// Takes a page for the owner of `heap`, within its limit; from its reserve if need be. nullptr:
// there is none, or mimalloc has put a page of an abandoned segment into `heap`, and looks there
// next.
mi_page_t* _mi_segment_page_alloc(mi_heap_t* heap, size_t block_bytes, size_t alignment,
                                  mi_segments_tld_t* tld, mi_os_tld_t* os_tld) {
  using namespace bedplate;
  HeapOwner owner{heap_of_thread_in_use(heap)};
  const bool is_boot =
      owner.index == kUnnamedOwner.index && !is_boot_retired.load(std::memory_order_relaxed);
  if (is_boot) owner = kBootOwner;
  if (alignment == 0) {
    if (mi_page_t* page = take_grown_page(heap, block_bytes, owner, tld)) return page;
  }
  const size_t expected = expected_charge(block_bytes, alignment);
  if (!charge_heap_owner(owner, expected)) return nullptr;
  const size_t segments_before = tld->current_size;
  mi_page_t* page = bp_take_page(heap, block_bytes, alignment, tld, os_tld);
  if (tld->current_size > segments_before) watch_free_memory();
  const mi_arena_id_t reserve = reserve_arenas[whose_reserve(owner.index)];
  if (page == nullptr && reserve != 0) {
    heap->arena_id = reserve;
    page = bp_take_page(heap, block_bytes, alignment, tld, os_tld);
    heap->arena_id = _mi_arena_id_none();
  }
  if (page == nullptr) {
    cancel_heap_charge(owner, expected);
    return nullptr;
  }
  // With guard pages (MODE=hardened) a huge block takes a little more.
  give_page(page, owner, expected);
  return page;
}

static void bp_refuse(size_t bytes, size_t alignment, bedplate::HeapRefusal::Cause cause) noexcept {
  using namespace bedplate;
  const InsideHeap inside;
  errno = ENOMEM;
  HeapRefusal refusal = bp_asked.alignment != 0 ? bp_asked : HeapRefusal{bytes, alignment};
  refusal.cause = cause;
  if (const auto handler = exhaustion_handler.load(std::memory_order_relaxed)) handler(refusal);
}

static void bp_page_given_back(mi_page_t* page) {
  using namespace bedplate;
  credit_heap_owner(owner_of_page(page), page_charge(page));
}
