// Mounts all file systems of an image: the kernel's own, and a few in memory.
#pragma once

#include "platform/result.h"

namespace bedplate {

// Mounts /dev, /proc, /sys, /run, /tmp, /dev/shm and, if the kernel has it, /sys/fs/pstore. A file
// system that is already mounted stays. Errors: the first mount that fails.
Result<void> mount_file_systems() noexcept;

}  // namespace bedplate
