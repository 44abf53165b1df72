// Segment 0: the memory of the process before there is a configuration.
//
// The first malloc of a program comes before main, so the first segment must exist before it, too.
// Its owner is `boot`. Its size and its pages are fixed at link time (bedplate_boot_bytes,
// bedplate_boot_page_bytes) or by the environment (BEDPLATE_BOOT_BYTES, BEDPLATE_BOOT_PAGE_BYTES,
// byte sizes as in the configuration). The default is 16 MiB in pages of 4 KiB: hugepages may not
// have been reserved yet, and an appliance gets them later.
#pragma once

#include <cstdint>

#include "pinned_pool/pinned_pool.h"

// The size of segment 0, and of each of its pages, in bytes. Weak symbols: a program overrides one
// with its own extern "C" definition.
extern "C" const uint64_t bedplate_boot_bytes;
extern "C" const uint64_t bedplate_boot_page_bytes;

namespace bedplate {

// The smallest segment 0 with which a program reaches main.
inline constexpr uint64_t kBootBytesMin = 8 * kMiB;
// Half of the smallest range that a pool has: the rest is for later segments.
inline constexpr uint64_t kBootBytesMax = 128 * kGiB;
static_assert(kBootBytesMax <= kPoolSpanBytes / 2);
// The size of segment 0 is rounded up to a multiple of this, and of its page size.
inline constexpr uint64_t kBootBytesGranularity = 4 * kMiB;

// The page size of segment 0, and its size in bytes; it need not exist yet. An invalid setting ends
// the process with a message.
PageSize boot_page() noexcept;
uint64_t boot_segment_bytes() noexcept;

// Creates segment 0 if it does not exist yet. Ends the process with a message if the system has no
// memory for it (no free hugepages, say), a setting is invalid, or a sanitizer uses the pool's
// addresses: before main no caller can handle an error.
// Threads: the first call comes before other threads exist.
Segment& boot_segment() noexcept;

}  // namespace bedplate
