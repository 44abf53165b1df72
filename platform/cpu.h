// Cores: their number, their use by this process, and pinning. Threads: any.
#pragma once

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

// The number of cores this process may run on (its affinity mask, not the machine's inventory).
int usable_cpu_count() noexcept;

// Whether core `cpu` exists and this process may run on it.
bool cpu_is_usable(int cpu) noexcept;

// Pins the calling thread to core `cpu`.
Result<void> pin_this_thread(int cpu) noexcept;

// The same for any thread of this process, by its number (gettid).
Result<void> pin_thread(pid_t thread, int cpu) noexcept;
// Whether `thread` may run on core `cpu` and on no other.
bool is_pinned(pid_t thread, int cpu) noexcept;

}  // namespace bedplate
