// The support level of this process's malloc: found by trying it, not concluded from how it was
// linked.
//
// A library's hold on malloc can be lost: to an allocator that the program brings, to one that
// is preloaded, to a link line without -u. So at boot each way to allocate is used once, with
// blocks too big for anybody's cache, and each block and each free is watched for in the pool.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bedplate {

// A set of the three, as bits.
enum class SupportLevel : uint32_t {
  // malloc is not the pool's: only memory taken from the pool explicitly has keys.
  kNone = 0,
  // Every way to allocate hands out blocks of the pool, and each free arrives at the pool's heap:
  // it says that the block's place is free.
  kFree = 1,
  // Memory that is freed whole stays the pool's: the pages of a freed chunk are still mapped and
  // there, so a registration over it stays good.
  kChunk = 2,
  // munmap of pool memory is seen, and refused.
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
  const char* way = nullptr;      // the first that failed: "realloc"; nullptr: none did
  const char* failure = nullptr;  // how it failed
};

// Tries if munmap of pool memory is refused; it must leave the pool as it was.
using MunmapProbe = bool (*)() noexcept;

// 4 MB through malloc, realloc, memalign, calloc, posix_memalign, aligned_alloc, new and aligned
// new, one after the other, each freed again. Without a probe, kMunmap is not proved.
// Takes memory from the heap for a moment; nothing stays. Creates the heap if there is none yet.
// Threads: any; others may allocate and free meanwhile.
SupportProof prove_support_level(MunmapProbe munmap_is_refused = nullptr) noexcept;

// "FREE CHUNK MUNMAP", those that are there; "none". Static text.
const char* to_text(SupportLevel level) noexcept;

// The name of the file whose malloc this process calls, "libjemalloc.so.2", cut off at
// `text_bytes`; of a static program it is the program's own. "" when it cannot be found out.
// Returns `text`, terminated. Requires: text_bytes > 0. Allocates. Threads: any.
const char* malloc_provider(char* text, size_t text_bytes) noexcept;

}  // namespace bedplate
