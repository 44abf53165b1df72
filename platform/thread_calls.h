// Where each thread of this process is: its calls, in the log, while it goes on. For the question
// of what keeps it, which no counter answers.
//
// Each thread is asked by a signal, one after the other, and logs its own calls from the handler;
// so it is kept for the time of that, and system calls that wait are woken once.
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
