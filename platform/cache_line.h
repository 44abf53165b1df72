// The size of a cache line, and a prefetch for writing.
#pragma once

#include <cstddef>

#include "platform/version.h"

namespace bedplate {

// The line of x86-64 and of most AArch64 processors. It belongs to the ABI between processes that
// share memory, so it is not std::hardware_destructive_interference_size, which may differ between
// compilers.
inline constexpr size_t kCacheLineBytes = 64;

// Memory of whole cache lines, for objects that want such an address.
struct alignas(kCacheLineBytes) CacheLine {
  std::byte bytes[kCacheLineBytes];
};

// Prefetches the line of `address` for writing: other caches give the line up now, not when the
// store waits for it. Any address is allowed: a prefetch does not fault.
inline void prefetch_for_write(const void* address) noexcept {
#ifdef __x86_64__
  // Without -mprfchw the builtin becomes a plain prefetch. Processors without prefetchw execute it
  // as a nop.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace bedplate
