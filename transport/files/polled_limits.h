// Limits of a drive's polled requests. For a polled request a shard asks the kernel for the
// outcome, again and again, instead of waiting for an interrupt (IORING_SETUP_IOPOLL).
//
// The kernel's block layer splits a request that exceeds the drive's limits, but it cannot split a
// polled one: kernels that mark a polled request REQ_NOWAIT (Linux 6.1 does) refuse it, and
// io_uring then retries it for ever. So a request that would be split is not polled; these limits
// tell which requests those are. If the limits cannot be known (drives made of others, file systems
// that may lie on several drives), nothing is polled.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

// The limits of a file or a block device. Default: none of its requests is polled.
struct PolledLimits {
  uint64_t bytes_max = 0;
  // The most pages, of kPageBytes, that a request may touch. The kernel may make a segment of each
  // page, even of adjacent ones.
  uint32_t page_count_max = 0;
  // No request crosses a multiple of this on the drive, or ends within `slack_bytes` before one; 0:
  // the drive has no such boundary.
  uint64_t chunk_bytes = 0;
  uint64_t slack_bytes = 0;
  uint64_t start_bytes = 0;  // a partition's start on the drive; used only with chunk_bytes

  static constexpr uint64_t kPageBytes = 4096;

  bool is_none() const noexcept { return bytes_max == 0; }

  // Whether the kernel takes this request without a split. Cost: with chunk_bytes a division.
  bool takes(const void* memory, uint64_t bytes, uint64_t offset) const noexcept {
    if (bytes == 0 || bytes > bytes_max) return false;
    const uint64_t first = reinterpret_cast<uintptr_t>(memory) / kPageBytes;
    const uint64_t last = (reinterpret_cast<uintptr_t>(memory) + bytes - 1) / kPageBytes;
    if (last - first >= page_count_max) return false;
    if (chunk_bytes == 0) return true;
    return (start_bytes + offset) % chunk_bytes + bytes + slack_bytes <= chunk_bytes;
  }
};

// The limits of the block device `number`, from sysfs below `root`. `has_file_system`: the limits
// of a file on it, at an unknown position. Errors: the reason why nothing can be polled, as an
// answer and a cure.
Result<PolledLimits> polled_limits_of(dev_t number, bool has_file_system,
                                      const std::string& root = "");

// The limits of the file or block device `fd`. Errors: as above; also for a file system other than
// ext4 and xfs, and for a file in the realtime part of xfs.
Result<PolledLimits> polled_limits_of_file(int fd);

}  // namespace bedplate
