// The support level of this process's malloc. Test calls find it: the linking does not show it.
//
// The interception of malloc can fail: an allocator of the program, a preloaded allocator, or a
// link line without -u replaces it. So boot tests each allocating function, with blocks too large
// for any cache. The test checks that each block lies in the pool and that each free reaches the
// pool's heap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/version.h"

namespace bedplate {

// A set of these bits.
enum class SupportLevel : uint32_t {
  // malloc is not the pool's: only memory taken explicitly from the pool has memory keys.
  kNone = 0,
  // Every allocating function hands out blocks of the pool, and each free reaches the pool's heap,
  // which then shows the block's memory as free.
  kFree = 1,
  // A freed chunk of memory stays in the pool: its pages are still mapped and resident, so a
  // registration over it stays valid.
  kChunk = 2,
  // munmap of pool memory is intercepted and refused.
  kMunmap = 4,
};

constexpr SupportLevel operator|(SupportLevel left, SupportLevel right) noexcept {
  return static_cast<SupportLevel>(static_cast<uint32_t>(left) | static_cast<uint32_t>(right));
}
constexpr bool includes(SupportLevel level, SupportLevel part) noexcept {
  return (static_cast<uint32_t>(level) & static_cast<uint32_t>(part)) ==
         static_cast<uint32_t>(part);
}

struct SupportProof {  // static texts
  SupportLevel level = SupportLevel::kNone;
  const char* failed_allocator = nullptr;  // the first, such as "realloc"; nullptr if none failed
  const char* failure = nullptr;           // how it failed
};

// Returns whether munmap of pool memory is refused. It must leave the pool as it was.
using MunmapProbe = bool (*)() noexcept;

// Allocates and frees 4 MB by malloc, realloc, memalign, calloc, posix_memalign, aligned_alloc, new
// and aligned new, one after the other, and stops when nothing is left to prove. Without a probe
// the level lacks kMunmap. Keeps no memory. Creates the heap if it does not exist. Threads: any;
// others may allocate and free meanwhile.
SupportProof prove_support_level(MunmapProbe munmap_is_refused = nullptr) noexcept;

// The bits of `level` in words, "FREE CHUNK MUNMAP"; "none". Static text.
const char* to_text(SupportLevel level) noexcept;

// Writes the name of the file whose malloc this process calls, "libjemalloc.so.2", truncated at
// `text_bytes`. In a static program that is the program's own file. Writes "" if it finds no file.
// Returns `text`, terminated. Requires: text_bytes > 0. Allocates. Threads: any.
const char* malloc_provider(char* text, size_t text_bytes) noexcept;

}  // namespace bedplate
