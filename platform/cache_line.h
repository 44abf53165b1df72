// The cache line, as far as layouts care.
#pragma once

#include <cstddef>

namespace bedplate {

// x86-64 and most of AArch64. A constant of the ABI between processes that share memory, so not
// std::hardware_destructive_interference_size, which may differ between compilers.
inline constexpr size_t kCacheLineBytes = 64;

}  // namespace bedplate
