// Every thread of this process, for what the kernel keeps for each thread alone (credentials).
#pragma once

#include <vector>

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

// The threads of this process that run its code: not the kernel's own (io_uring's workers), which
// act with the rights of the request that they carry out.
Result<std::vector<pid_t>> list_threads();

// Calls `function(context)` on every thread, one after the other, the calling one last; on the
// others in a signal handler, so it must be fit for one. A thread that is started meanwhile
// inherits what its parent had, and gets the call as well if need be.
// Requires: one call at a time. Errors: a thread has blocked the signal (told by its number).
Result<void> on_every_thread(void (*function)(void* context) noexcept, void* context);

}  // namespace bedplate
