// Logs the call stack of each thread of this process while it runs. This shows where a thread
// blocks, which no counter does.
//
// One after the other, each thread gets a signal (SIGRTMAX - 3) and logs its own stack from the
// handler. This delays the thread for that time, and interrupts its waiting system call once: the
// kernel restarts the call, or the call fails with EINTR (epoll_wait, nanosleep).
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

struct ThreadCallsLogged {
  uint32_t threads = 0;  // all but io_uring's workers, which are the kernel's
  uint32_t silent = 0;   // threads among these that did not answer in time
};

// Logs a line for each thread, followed by its calls (platform/call_stack.h), at the level of
// errors. A thread that does not answer within `patience_ns` is logged as silent: it is stopped,
// waits uninterruptibly in the kernel, or blocks the signal. A thread that has begun to answer gets
// 20 times `patience_ns` in all.
// Threads: any; one call after the other. Errors: threads cannot be listed, or other code uses the
// signal.
[[nodiscard]] Result<ThreadCallsLogged> log_thread_calls(uint64_t patience_ns) noexcept;

}  // namespace bedplate
