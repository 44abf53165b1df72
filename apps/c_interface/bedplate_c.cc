// The C interface to the heap: implements bedplate.h on the pool's heap.
#include <cerrno>
#include <cstdio>

#include "alloc/added_heap.h"
#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "alloc/pool_heap.h"
#include "alloc/support_level.h"
#include "apps/c_interface/bedplate.h"
#include "apps/c_interface/error_c.h"
#include "pinned_pool/audit.h"
#include "pinned_pool/no_way_back.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"

using namespace bedplate;

static_assert(static_cast<unsigned>(SupportLevel::kFree) == BP_SUPPORT_FREE);
static_assert(static_cast<unsigned>(SupportLevel::kChunk) == BP_SUPPORT_CHUNK);
static_assert(static_cast<unsigned>(SupportLevel::kMunmap) == BP_SUPPORT_MUNMAP);

// mimalloc sets errno only if it searched for memory without success, not if it refused the request
// at once.
static void* served(void* block) noexcept {
  if (block == nullptr) errno = ENOMEM;
  return block;
}

extern "C" {

void* bp_alloc(size_t bytes) {
  return served(
      pool_allocate(bytes, bytes < alignof(max_align_t) ? alignof(void*) : alignof(max_align_t)));
}

void* bp_alloc_aligned(size_t alignment, size_t bytes) {
  if (!is_power_of_two(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return served(pool_allocate(bytes, alignment));
}

void* bp_realloc(void* block, size_t bytes) { return served(pool_reallocate(block, bytes)); }

void bp_free(void* block) {
  const int errno_before = errno;
  pool_free(block);
  errno = errno_before;
}

size_t bp_usable_bytes(const void* block) { return pool_usable_bytes(block); }

int bp_add_heap(size_t bytes, size_t page_bytes) {
  if (!is_page_bytes(page_bytes)) {
    return c_fail(configuration_error_while("adding %s to the heap", format_bytes(bytes).text)
                      .set_answer("%zu is not a page size", page_bytes)
                      .set_cure("use 4096, 2097152 (2 MiB) or 1073741824 (1 GiB)"));
  }
  auto added = add_heap(bytes, static_cast<PageSize>(page_bytes));
  return added.ok() ? 0 : c_fail(added.error());
}

unsigned bp_support_level(void) {
  return static_cast<unsigned>(prove_support_level(&munmap_is_refused).level);
}

const char* bp_support_level_text(unsigned level) {
  return to_text(static_cast<SupportLevel>(level));
}

int bp_contains(const void* pointer, size_t bytes) {
  return process_pool().contains(pointer, bytes) ? 1 : 0;
}

int bp_audit(char* text, size_t text_bytes) {
  PoolMap map;
  process_pool().write_map(&map);
  auto report = audit_maps(map, 0);
  if (report.ok()) {
    std::snprintf(text, text_bytes, "%s", report.value().text);
    return report.value().ok ? 1 : 0;
  }
  char whole[512];
  std::snprintf(text, text_bytes, "%s", format_error(report.error(), whole, sizeof whole));
  return -1;
}

bp_owner bp_owner_create(const char* name, size_t limit_bytes) {
  Result<HeapOwner> owner = heap_owner(name);
  if (!owner.ok()) {
    errno = ENOSPC;
    return kUnnamedOwner.index;
  }
  limit_heap_owner(owner.value(), limit_bytes != 0 ? limit_bytes : kNoLimit);
  return owner.value().index;
}

bp_owner bp_owner_enter(bp_owner owner) { return enter_heap_owner({owner}).index; }

size_t bp_owner_used_bytes(bp_owner owner) { return heap_owner_use({owner}).used_bytes; }

void bp_on_low_memory(size_t free_bytes, void (*function)(void*), void* context) {
  set_low_memory_handler(free_bytes, function, context);
}

}  // extern "C"
