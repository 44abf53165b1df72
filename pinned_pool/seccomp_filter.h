// A seccomp filter that refuses, with EPERM, every system call that could take memory of the sealed
// pool away, through libc or raw: for kernels without mseal, and for calls that mseal lets pass.
//
// It checks addresses only, so other uses of these calls pass. It refuses outright the calls that
// reach memory in another way and that an appliance does not need (move_pages, migrate_pages,
// process_madvise, munlockall, shmat with SHM_REMAP, the x32 calls). A filter cannot be removed;
// children inherit it, and the same addresses stay refused there.
// Sources: seccomp(2), Documentation/userspace-api/seccomp_filter.rst of the kernel.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

// Puts the filter in force for all threads of the process, for addresses from `begin` up to `end`.
// Requires: no thread has a filter of its own that the others lack.
// Errors: the kernel has no seccomp, or another thread has a filter of its own.
// Cost: some tens of instructions for each call that it checks; the kernel caches that all others
// pass.
Result<void> install_seccomp_filter(uint64_t begin, uint64_t end);

}  // namespace bedplate
