// A seccomp filter that refuses, with EPERM, every system call that could take memory of the sealed
// pool away, however the program makes it: for kernels without mseal, and for what mseal lets pass.
//
// It looks at addresses only, so everything else about the program stays as it was; calls that name
// memory by other means and that an appliance has no use for (move_pages, migrate_pages,
// process_madvise, munlockall, shmat with SHM_REMAP, the x32 calls) are refused altogether. A
// filter cannot be taken off again and is inherited by children, where the same addresses stay
// refused.
// Sources: seccomp(2), Documentation/userspace-api/seccomp_filter.rst of the kernel.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

// Puts the filter in force for all threads of the process, for addresses from `begin` up to `end`.
// Requires: no thread has a filter of its own that the others lack.
// Errors: the kernel has no seccomp, or another thread's filter stands in the way.
// Cost: for the calls that it judges some tens of instructions; for all others the kernel remembers
// that they pass.
Result<void> install_seccomp_filter(uint64_t begin, uint64_t end);

}  // namespace bedplate
