// Capabilities: the rights of root, one bit each (capabilities(7)). An appliance needs few of them
// to serve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

// The capabilities of this thread that are in effect; 0 also if the kernel does not tell.
uint64_t own_capabilities() noexcept;

// The names of the capabilities in `kept`, for a log: "SYS_BOOT, SYS_PTRACE". One without a name
// here is shown by its number: "number 21".
std::string name_capabilities(uint64_t kept);

// Drops all capabilities but `kept`, for good, from this thread and from all threads that it starts
// later. They leave the bounding set too, and no_new_privs is set, so that no program it executes
// gets any back. The user does not change: files that root may write (/proc/sys, /sys) stay
// writable. Requires: the thread has the capabilities `kept`.
// Errors (kSystem): the kernel's; a part may be dropped then.
Result<void> keep_capabilities(uint64_t kept) noexcept;

// The first step of keep_capabilities(): limits the capabilities of programs that this thread
// executes. Needs CAP_SETPCAP if there is anything to drop.
Result<void> bound_capabilities(uint64_t kept) noexcept;

// The threads of this process. Each thread has its own capabilities, initially those of the thread
// that started it.
Result<std::vector<pid_t>> list_threads();

// Succeeds if each thread of this process has exactly the capabilities `kept`: permitted, in effect
// and in the bounding set. Errors (kSystem): the first thread that has others, or that ends during
// the check.
Result<void> check_capabilities(uint64_t kept);

}  // namespace bedplate
