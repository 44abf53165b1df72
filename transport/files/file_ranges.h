// Constants of the backends of files: how they ask the kernel to allocate, zero or give back
// ranges, and how much one request moves.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fcntl.h>

#include "platform/units.h"
#include "transport/files/files.h"

namespace bedplate {

// The most bytes that one request moves. A call of the kernel moves at most 2 GiB less a page, and
// io_uring's lengths have 32 bits.
inline constexpr uint64_t kFilePieceBytesMax = kGiB;

// Requires: `action` allocates, zeroes or discards a range.
constexpr int fallocate_mode(FileAction action) noexcept {
  switch (action) {
    case FileAction::kWriteZeroes: return FALLOC_FL_ZERO_RANGE;
    case FileAction::kDiscard: return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    default: return 0;
  }
}

}  // namespace bedplate
