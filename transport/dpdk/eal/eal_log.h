// Sends DPDK's messages to our log, line by line.
#pragma once

#include "platform/result.h"

namespace bedplate {

// Sends DPDK's errors, warnings and notices to our log from now on: a notice has the level info. A
// line is truncated at 255 bytes. Allocates.
// Errors: no memory for a stream.
Result<void> open_eal_log() noexcept;

// DPDK's last error line since the previous call; "" if there was none. It says more than DPDK's
// error number. Valid until the next call. Threads: one at a time, before the shards run.
const char* take_eal_error() noexcept;

}  // namespace bedplate
