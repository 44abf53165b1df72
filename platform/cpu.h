// Cores: their number, their use by this process, and pinning. Threads: any.
//
// All functions use masks of 1024 cores: where the kernel needs larger masks, no core counts as
// usable or pinned.
#pragma once

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

// The number of cores that the calling thread may run on (its affinity mask, not the machine's
// inventory): in a pinned thread 1, so ask before pinning.
int usable_cpu_count() noexcept;

// Whether core `cpu` exists and the calling thread may be pinned to it. The thread's mask need not
// have it: masks leave out the cores that isolcpus= isolates, until a thread is pinned to one. So
// the kernel is asked, by pinning the thread for a moment.
bool cpu_is_usable(int cpu) noexcept;

// Pins the calling thread to core `cpu`. Errors (kSystem): there is no such core, or this process
// may not use it.
Result<void> pin_this_thread(int cpu) noexcept;

// The same for any thread of this process, by its number (gettid).
Result<void> pin_thread(pid_t thread, int cpu) noexcept;
// Whether `thread` may run on core `cpu` and on no other; false also if there is no such thread.
bool is_pinned(pid_t thread, int cpu) noexcept;

}  // namespace bedplate
