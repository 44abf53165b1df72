// The kernel's own file systems and a few on memory: all that an image mounts.
#pragma once

#include "platform/result.h"

namespace bedplate {

// Mounts /dev, /proc, /sys, /run, /tmp, /dev/shm and, if the kernel has it, /sys/fs/pstore. A file
// system that is already mounted stays. Errors: the first that is refused.
Result<void> mount_file_systems() noexcept;

}  // namespace bedplate
