// Pages as the kernel takes them for this process, and says so where it cannot.
//
// A page that is not there and cannot be had ends the process that touches it (SIGBUS). Asked for
// by a system call it is an errno value instead. So whatever another process may have punched holes
// into is taken, or zeroed, by these, and not by touching it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pinned_pool/pinned_pool.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Takes the pages of `memory` that are not there; what it holds stays. Returns 0 or an errno value.
int take_pages(std::span<std::byte> memory) noexcept;

// Whether pages of the segment were given back: its file has fewer than it is long.
// Cost: one system call. Threads: any; what others take or give back meanwhile may count or not.
bool has_holes(const Segment& segment) noexcept;

// Zeroes memory, and takes the pages of it that are not there.
class PageWiper {
 public:
  static constexpr uint64_t kPieceBytesMax = 8 * kMiB;  // some 2 ms; some 10 where all are missing

  // Errors: the system's.
  Result<void> create() noexcept;

  // Returns how many bytes were zeroed, from the beginning on; fewer than asked for: errno says why
  // no more. Requires: create(); at most kPieceBytesMax.
  uint64_t zero(std::span<std::byte> memory) const noexcept;

 private:
  Fd zeros_;  // a file of holes, which read as zeros as fast as memset writes them
};

}  // namespace bedplate
