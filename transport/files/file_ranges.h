// Constants of both backends of files: how they ask the kernel for ranges that are zeroed or given
// back, and how much they move by one call.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fcntl.h>

#include "platform/units.h"
#include "transport/files/files.h"

namespace bedplate {

// The kernel moves at most 2 GiB less a page by one call, and io_uring's lengths are of 32 bits.
inline constexpr uint64_t kFilePieceBytesMax = kGiB;

// Requires: a range is taken, zeroed or given back.
constexpr int fallocate_mode(FileAction action) noexcept {
  switch (action) {
    case FileAction::kWriteZeroes: return FALLOC_FL_ZERO_RANGE;
    case FileAction::kDiscard: return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    default: return 0;
  }
}

}  // namespace bedplate
