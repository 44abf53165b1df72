// A copy by non-temporal stores: the bytes go to memory, past the caches.
//
// For bytes that go from a hot buffer to a place of their own in more memory than the caches hold.
// An ordinary store first waits until its line is read from there, and evicts a line that may still
// be wanted.
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

// True if this thread has copied since its last fence; only debug builds keep it. Code that tells
// others of a copy asserts that it is false: few processors reorder so much that a test could see a
// missing fence.
inline constinit thread_local bool is_nontemporal_fence_due = false;

// Whether copy_nontemporal may be asked for: `to` begins a line, and `bytes` are whole lines.
inline bool is_whole_lines(const void* to, size_t bytes) noexcept {
  return (reinterpret_cast<uintptr_t>(to) | bytes) % kCacheLineBytes == 0;
}

// As memcpy. Requires: is_whole_lines(to, bytes); fence_nontemporal() before another thread is told
// of the bytes, since no other store of this thread waits for these, not even a release. On a
// processor without such stores it is memcpy.
inline void copy_nontemporal(void* to, const void* from, size_t bytes) noexcept {
  BP_DCHECK(is_whole_lines(to, bytes));
  if constexpr (BP_DEBUG) is_nontemporal_fence_due = true;
#ifdef __SSE2__
  constexpr size_t kPerLine = kCacheLineBytes / sizeof(__m128i);
  auto* target = static_cast<__m128i*>(to);
  const auto* source = static_cast<const __m128i*>(from);
  // No other load comes between the stores of a line: the line leaves in one piece.
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

// Orders this thread's copies so far before all its later stores.
inline void fence_nontemporal() noexcept {
  if constexpr (BP_DEBUG) is_nontemporal_fence_due = false;
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace bedplate
