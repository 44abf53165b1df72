// Takes and zeroes pages by system calls, which report a page that is not available.
//
// A process that touches a missing page ends by SIGBUS if no page is available. A system call
// returns an errno value instead. So these functions take and zero memory into which another
// process may have punched holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pinned_pool/pinned_pool.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Takes the missing pages of `memory`; its content stays. Returns 0 or an errno value. Requires:
// `memory` begins at a page; a part of a page at its end is taken as a whole page.
int take_pages(std::span<std::byte> memory) noexcept;

// Whether pages of the segment were given back: its file has fewer pages than its length needs.
// True also if fstat(2) fails. Requires: the segment is not private. Cost: one system
// call. Threads: any; pages taken or given back meanwhile may count or not.
bool has_holes(const Segment& segment) noexcept;

// Zeroes memory, and takes its missing pages. Threads: any, after create().
class PageWiper {
 public:
  // zero() takes some 2 ms for so many bytes; some 10 ms if all pages are missing.
  static constexpr uint64_t kPieceBytesMax = 8 * kMiB;

  // Errors (kSystem): the system's. Requires: called once.
  Result<void> create() noexcept;

  // Returns how many bytes were zeroed, from the beginning on; if fewer than `memory` has, errno
  // has the cause. Requires: create() has succeeded; `memory` has at most kPieceBytesMax.
  uint64_t zero(std::span<std::byte> memory) const noexcept;

 private:
  Fd zeros_;  // a sparse file, which reads as zeros as fast as memset
};

}  // namespace bedplate
