// Sends DPDK's messages to our log, line by line.
#pragma once

#include "platform/result.h"

namespace bedplate {

// From now on DPDK writes its warnings, errors and notices to our log. Allocates.
// Errors: there is no memory for a stream.
Result<void> open_eal_log() noexcept;

// DPDK's last error line since the previous call; "" if there was none. It tells more of a failure
// than DPDK's error number. Valid until the next error line. Threads: one at a time, before the
// shards run.
const char* take_eal_error() noexcept;

}  // namespace bedplate
