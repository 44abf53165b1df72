// Takes and zeroes pages by system calls, which can report that a page is not to be had.
//
// A process that touches a missing page that is not to be had ends (SIGBUS). A system call returns
// an errno value instead. So memory that another process may have punched holes into is taken and
// zeroed by these functions, not by touching it.
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

// Whether pages of the segment were given back: its file has fewer than its length needs.
// Cost: one system call. Threads: any; pages taken or given back meanwhile may count or not.
bool has_holes(const Segment& segment) noexcept;

// Zeroes memory, and takes its missing pages.
class PageWiper {
 public:
  static constexpr uint64_t kPieceBytesMax = 8 * kMiB;  // some 2 ms; some 10 if all are missing

  // Errors: the system's.
  Result<void> create() noexcept;

  // Returns how many bytes were zeroed, from the beginning on; if fewer than asked for, errno has
  // the cause. Requires: create(); at most kPieceBytesMax.
  uint64_t zero(std::span<std::byte> memory) const noexcept;

 private:
  Fd zeros_;  // a file of holes, which read as zeros as fast as memset writes them
};

}  // namespace bedplate
