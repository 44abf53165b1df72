// The pool's range of addresses: fixed at compile time, the same in every process that joins.
//
// The range is cut into regions of 1 GiB of address space. A segment begins at a region's start
// and takes as many regions as it needs. A region is the most that io_uring takes for a buffer.
// Since segments begin at regions, a shift and a table load find a device's key for a pointer
// (transport/registration.h). A comparison with each of the few segments finds the segment of a
// pointer (PinnedPool::segment_of).
// Address space is cheap: a process has 128 TiB of it, and an unused region has no pages.
#pragma once

#include <cstdint>

#include "platform/sanitized_build.h"
#include "platform/units.h"

namespace bedplate {

// The pool's first address. It lies above the program and the heap that the kernel places, below
// libraries and stacks, and above AddressSanitizer's range (16 TiB and a little); the pool ends
// below the 20 TiB that mimalloc's map of its segments covers. ThreadSanitizer claims most of the
// address space: it leaves programs the range from 0x7e8000000000 on, and libraries may lie from
// 0x7efb00000000 on, so the pool there has half the regions.
#ifdef BP_THREAD_SANITIZER
inline constexpr uintptr_t kPoolBase = 0x7e90'0000'0000;
inline constexpr uint32_t kRegionCountMax = 256;
#else
inline constexpr uintptr_t kPoolBase = 0x1080'0000'0000;
inline constexpr uint32_t kRegionCountMax = 512;
#endif

inline constexpr unsigned kRegionBytesLog2 = 30;
inline constexpr uint64_t kRegionBytes = uint64_t{1} << kRegionBytesLog2;
inline constexpr uint64_t kPoolSpanBytes = kRegionBytes * kRegionCountMax;
inline constexpr uint32_t kSegmentCountMax = 128;

// The number of regions that a segment of `bytes` takes.
constexpr uint64_t regions_of(uint64_t bytes) noexcept {
  return (bytes + kRegionBytes - 1) >> kRegionBytesLog2;
}

// Whether `pointer` lies in the pool's range; it may lie in a gap between segments.
// Cost: one subtraction and one comparison.
inline bool in_pool_range(const void* pointer) noexcept {
  return reinterpret_cast<uintptr_t>(pointer) - kPoolBase < kPoolSpanBytes;
}

}  // namespace bedplate
