#include "alloc/support_level.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <malloc.h>
#include <sys/mman.h>

#include "alloc/confined_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Larger than the blocks any allocator caches, and with its header within one 4 MiB unit.
constexpr size_t kBlockBytes = 4'000'000;
constexpr size_t kAlignment = 4 * kKiB;
constexpr auto kNewAlignment = std::align_val_t(kAlignment);

struct Allocator {
  const char* name;
  void* (*allocate)();
  void (*release)(void* block);
};

constexpr Allocator kAllocators[] = {
    {"malloc", [] { return std::malloc(kBlockBytes); }, &std::free},
    {"realloc", [] { return std::realloc(std::malloc(64), kBlockBytes); }, &std::free},
    {"memalign", [] { return memalign(kAlignment, kBlockBytes); }, &std::free},
    {"calloc", [] { return std::calloc(1, kBlockBytes); }, &std::free},
    {"posix_memalign",
     [] {
       void* block = nullptr;
       return posix_memalign(&block, kAlignment, kBlockBytes) == 0 ? block : nullptr;
     },
     &std::free},
    {"aligned_alloc",
     [] { return std::aligned_alloc(kAlignment, align_up(kBlockBytes, kAlignment)); }, &std::free},
    // The throwing forms, as programs use them; malloc has just allocated as many bytes, so they do
    // not throw.
    {"new", [] { return ::operator new(kBlockBytes); },
     [](void* block) { ::operator delete(block); }},
    {"aligned new", [] { return ::operator new(kBlockBytes, kNewAlignment); },
     [](void* block) { ::operator delete(block, kNewAlignment); }},
};

// Whether the unit of the heap in which `block` begins is in use; false if it lies in no arena.
bool is_used_by_heap(const void* block) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(block);
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    const HeapArenaUse arena = heap_arena_use(i);
    const auto begin = reinterpret_cast<uintptr_t>(arena.address);
    if (address < begin || address - begin >= arena.bytes) continue;
    return heap_unit_is_used(i, (address - begin) / kHeapGranularityBytes);
  }
  return false;
}

// Whether every page of [block, block + kBlockBytes) is mapped and resident.
bool is_resident(const void* block) noexcept {
  unsigned char pages[kBlockBytes / kAlignment + 2];
  const uintptr_t begin = align_down(reinterpret_cast<uintptr_t>(block), kAlignment);
  const uintptr_t end = align_up(reinterpret_cast<uintptr_t>(block) + kBlockBytes, kAlignment);
  if (mincore(reinterpret_cast<void*>(begin), end - begin, pages) != 0) return false;
  return std::all_of(pages, pages + (end - begin) / kAlignment,
                     [](unsigned char page) { return (page & 1) != 0; });
}

constexpr const char* kFreeDidNotArrive = "its free did not reach the heap";

struct Observed {
  const char* free_failure = nullptr;
  const char* chunk_failure = nullptr;
};

Observed observe(const Allocator& allocator) {
  Observed observed;
  void* block = allocator.allocate();
  // The compiler knows these functions, and would drop an unused block.
  asm volatile("" : "+r"(block) : : "memory");
  if (block == nullptr) {
    observed.free_failure = observed.chunk_failure = "the heap has no 4 MB free";
    return observed;
  }
  const bool is_inside = process_pool().contains(block, kBlockBytes);
  const bool was_used = is_used_by_heap(block);
  allocator.release(block);
  if (!is_inside) {
    observed.free_failure = observed.chunk_failure = "its block does not lie in the pool";
  } else if (!was_used) {
    observed.free_failure = "its block is not from the pool's heap";
  } else if (is_used_by_heap(block)) {
    observed.free_failure = kFreeDidNotArrive;
  }
  if (is_inside && !is_resident(block)) observed.chunk_failure = "a freed chunk lost its pages";
  return observed;
}

// Repeats a failed test: another thread may take the freed memory before the check. A free that
// does not reach the heap fails every time.
Observed observe_again(const Allocator& allocator) {
  Observed observed = observe(allocator);
  for (int i = 0; i < 9 && observed.free_failure == kFreeDidNotArrive; ++i) {
    observed = observe(allocator);
  }
  return observed;
}

}  // namespace

SupportProof prove_support_level(MunmapProbe munmap_is_refused) noexcept {
  heap_create();
  SupportProof proof;
  bool has_free = true, has_chunk = true;
  for (const Allocator& allocator : kAllocators) {
    const Observed observed = observe_again(allocator);
    has_free &= observed.free_failure == nullptr;
    has_chunk &= observed.chunk_failure == nullptr;
    if (proof.failed_allocator == nullptr && !(has_free && has_chunk)) {
      proof.failed_allocator = allocator.name;
      proof.failure = has_free ? observed.chunk_failure : observed.free_failure;
    }
    if (!has_free && !has_chunk) break;  // nothing is left to prove
  }
  if (has_free) proof.level = proof.level | SupportLevel::kFree;
  if (has_chunk) proof.level = proof.level | SupportLevel::kChunk;
  if (munmap_is_refused != nullptr && munmap_is_refused()) {
    proof.level = proof.level | SupportLevel::kMunmap;
  }
  return proof;
}

const char* to_text(SupportLevel level) noexcept {
  constexpr const char* kTexts[] = {"none",   "FREE",        "CHUNK",        "FREE CHUNK",
                                    "MUNMAP", "FREE MUNMAP", "CHUNK MUNMAP", "FREE CHUNK MUNMAP"};
  const auto bits = static_cast<uint32_t>(level);
  return bits < std::size(kTexts) ? kTexts[bits] : "unknown";
}

const char* malloc_provider(char* text, size_t text_bytes) noexcept {
  std::snprintf(text, text_bytes, "%s", "");
  const auto function = reinterpret_cast<uintptr_t>(&std::malloc);
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return text;
  char line[4096 + 128];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (function < begin || function >= end) continue;
    line[std::strcspn(line, "\n")] = '\0';
    const char* name = std::strrchr(line, '/');
    if (name != nullptr) std::snprintf(text, text_bytes, "%s", name + 1);
    break;
  }
  std::fclose(maps);
  return text;
}

}  // namespace bedplate
