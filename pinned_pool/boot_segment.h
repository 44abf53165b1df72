// Segment 0: the memory of the process before there is a configuration.
//
// The first malloc of a program comes before main, so the first segment must, too: 4 KiB pages
// (hugepages may not have been reserved yet), owner `boot`, and a size that is fixed at link time
// (bedplate_boot_bytes) or by the environment (BEDPLATE_BOOT_BYTES, a byte size as in the
// configuration).
#pragma once

#include <cstdint>

#include "pinned_pool/pinned_pool.h"

// The size of segment 0. Weak: a program that defines it itself, extern "C", chooses another.
extern "C" const uint64_t bedplate_boot_bytes;

namespace bedplate {

// The smallest segment 0 with which a program gets to its main.
inline constexpr uint64_t kBootBytesMin = 8 * kMiB;
// What its size is rounded up to.
inline constexpr uint64_t kBootBytesGranularity = 4 * kMiB;

// The size that segment 0 has or would have.
uint64_t boot_segment_bytes() noexcept;

// Creates segment 0 if it does not exist yet. Aborts with a message when the system has no memory
// for it or BEDPLATE_BOOT_BYTES is no size: before main there is nobody to report to.
// Threads: the first call comes before there are any.
Segment& boot_segment() noexcept;

}  // namespace bedplate
