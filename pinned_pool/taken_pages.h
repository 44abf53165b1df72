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

// Takes the missing pages of `memory`; its content stays. Returns 0 or an errno value.
int take_pages(std::span<std::byte> memory) noexcept;

// Whether pages of the segment were given back: its file has fewer pages than its length needs.
// Cost: one system call. Threads: any; pages taken or given back meanwhile may count or not.
bool has_holes(const Segment& segment) noexcept;

// Zeroes memory, and takes its missing pages.
class PageWiper {
 public:
  static constexpr uint64_t kPieceBytesMax = 8 * kMiB;  // some 2 ms; some 10 if all are missing

  // Errors: the system's.
  Result<void> create() noexcept;

  // Returns how many bytes were zeroed, from the beginning on; if fewer than `memory` has, errno
  // has the cause. Requires: create(); at most kPieceBytesMax.
  uint64_t zero(std::span<std::byte> memory) const noexcept;

 private:
  Fd zeros_;  // a sparse file, which reads as zeros as fast as memset
};

}  // namespace bedplate
