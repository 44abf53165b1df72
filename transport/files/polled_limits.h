// Limits of a drive's polled requests: we ask the kernel for their outcome, again and again,
// instead of waiting for an interrupt (IORING_SETUP_IOPOLL).
//
// The kernel's block layer splits a request that is beyond the drive's limits. One that is polled
// may not be split: kernels that mark it REQ_NOWAIT (Linux 6.1 does) refuse it then, and io_uring
// tries it again for ever. So a request that would be split goes another way; these limits say
// which would. If the limits cannot be known (drives made of others, file systems on several),
// nothing is polled.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

// The limits of a file or a block device. None: nothing of it is polled.
struct PolledLimits {
  uint64_t bytes_max = 0;
  // Pages of kPageBytes that a request has a part of. The kernel may make a segment of each, also
  // where they lie beside each other.
  uint32_t page_count_max = 0;
  // No request crosses a multiple of it on the drive, nor comes nearer than `slack_bytes`; 0: there
  // is no such boundary.
  uint64_t chunk_bytes = 0;
  uint64_t slack_bytes = 0;
  uint64_t start_bytes = 0;  // where on the drive it begins; only with chunk_bytes

  static constexpr uint64_t kPageBytes = 4096;

  bool is_none() const noexcept { return bytes_max == 0; }

  // Whether the kernel takes this in one piece. Cost: with chunk_bytes a division.
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
// of a file that lies on it, at an unknown place.
// Errors: why nothing can be polled, as an answer and a cure.
Result<PolledLimits> polled_limits_of(dev_t number, bool has_file_system,
                                      const std::string& root = "");

// The limits of the file or block device that `fd` is. Errors: the same, and file systems that may
// lie on several devices.
Result<PolledLimits> polled_limits_of_file(int fd);

}  // namespace bedplate
