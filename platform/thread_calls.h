// Logs where each thread of this process is, by its calls, while it goes on. This shows what blocks
// a thread, which no counter does.
//
// Each thread is asked by a signal, one after the other, and logs its own calls from the handler;
// this holds the thread up so long, and wakes its waiting system calls once.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

struct ThreadCallsLogged {
  uint32_t threads = 0;  // that there were, but for io_uring's workers, which are the kernel's
  uint32_t silent = 0;   // of these, those that did not answer in time
};

// Logs a line for each thread, and behind it its calls (platform/call_stack.h), at the level of
// errors. A thread that does not answer within `patience_ns` is said to be silent: it is stopped,
// waits in the kernel where nothing wakes it, or keeps signals from itself.
// Threads: any; one call after the other. Errors: threads cannot be listed, or
// the signal is somebody else's.
[[nodiscard]] Result<ThreadCallsLogged> log_thread_calls(uint64_t patience_ns) noexcept;

}  // namespace bedplate
