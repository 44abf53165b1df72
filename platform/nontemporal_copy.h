// A copy by non-temporal stores: the bytes go to memory, past the caches.
//
// Use it to copy from a hot buffer into a region larger than the caches. An ordinary store first
// waits until its line is read from memory, and evicts a line that may still be needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "platform/assert.h"
#include "platform/cache_line.h"

namespace bedplate {

// True if this thread has copied since its last fence; only debug builds maintain it. Code that
// publishes a copy asserts that it is false: few processors reorder enough for a test to catch a
// missing fence.
inline constinit thread_local bool is_nontemporal_fence_due = false;

// Whether copy_nontemporal allows these arguments: `to` is the start of a cache line, and `bytes`
// is a multiple of kCacheLineBytes.
inline bool is_whole_lines(const void* to, size_t bytes) noexcept {
  return (reinterpret_cast<uintptr_t>(to) | bytes) % kCacheLineBytes == 0;
}

// As memcpy. Requires: is_whole_lines(to, bytes); fence_nontemporal() before another thread learns
// of the bytes, since no later store of this thread, not even a release, waits for the copy. In a
// build without SSE2 this is memcpy.
inline void copy_nontemporal(void* to, const void* from, size_t bytes) noexcept {
  BP_DCHECK(is_whole_lines(to, bytes));
  if constexpr (BP_DEBUG) is_nontemporal_fence_due = true;
#ifdef __SSE2__
  constexpr size_t kPerLine = kCacheLineBytes / sizeof(__m128i);
  auto* target = static_cast<__m128i*>(to);
  const auto* source = static_cast<const __m128i*>(from);
  // No other load comes between the stores of a line, so the line is written in one transfer.
  for (const __m128i* const end = target + bytes / sizeof(__m128i); target != end;
       target += kPerLine, source += kPerLine) {
    __m128i line[kPerLine];
    for (size_t i = 0; i < kPerLine; ++i) line[i] = _mm_loadu_si128(source + i);
    for (size_t i = 0; i < kPerLine; ++i) _mm_stream_si128(target + i, line[i]);
  }
#else
  std::memcpy(to, from, bytes);
#endif
}

// Orders all copies of this thread so far before its later stores. In a build without SSE2 it is no
// fence: there a release store publishes the copy, as after memcpy.
inline void fence_nontemporal() noexcept {
  if constexpr (BP_DEBUG) is_nontemporal_fence_due = false;
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace bedplate
