// What DPDK says goes to our log, line by line.
//
// Tested by tests/transport/dpdk/eal/eal_test.cc.
#pragma once

#include "platform/result.h"

namespace bedplate {

// Has DPDK write to our log from now on: warnings and errors, and what it calls notices. Allocates.
// Errors: there is no memory for a stream.
Result<void> open_eal_log() noexcept;

// The last line of DPDK's that was an error, since this was called last; "" where there was none.
// It is what it knows of a failure beyond a number. Valid until the next one. Threads: one at a
// time, before the shards run.
const char* take_eal_error() noexcept;

}  // namespace bedplate
