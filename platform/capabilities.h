// Capabilities: what root may do, in bits (capabilities(7)). An appliance needs few of them to
// serve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

// The capabilities of this thread that are in effect.
uint64_t own_capabilities() noexcept;

// "SYS_BOOT, SYS_PTRACE": the set `kept` for a log.
std::string name_capabilities(uint64_t kept);

// Takes all but `kept` from this thread and from all threads that it starts from now on, for good:
// bounding set included, and no program that it executes gets any back. The user stays: files that
// root may write (/proc/sys, /sys) still let it.
Result<void> keep_capabilities(uint64_t kept) noexcept;

// The first half of that: limits only the capabilities of programs that it executes. Needs
// CAP_SETPCAP.
Result<void> bound_capabilities(uint64_t kept) noexcept;

// The threads of this process. Each thread has capabilities of its own; it begins with those of the
// thread that started it.
Result<std::vector<pid_t>> list_threads();

// Succeeds if each thread of this process has `kept` and nothing more. Errors: the first that has
// more, or another set.
Result<void> check_capabilities(uint64_t kept);

}  // namespace bedplate
