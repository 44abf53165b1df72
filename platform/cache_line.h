// The cache line, as far as layouts care.
#pragma once

#include <cstddef>

namespace bedplate {

// x86-64 and most of AArch64. A constant of the ABI between processes that share memory, so not
// std::hardware_destructive_interference_size, which may differ between compilers.
inline constexpr size_t kCacheLineBytes = 64;

// Asks for the line of `address` as one that will be written: other caches give it up now, not when
// the store waits for it. No address faults.
inline void prefetch_for_write(const void* address) noexcept {
#ifdef __x86_64__
  // The builtin becomes a plain prefetch without -mprfchw; a processor without it takes it as a
  // nop.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace bedplate
