// A seccomp filter that refuses, with EPERM, every system call that could take memory of the sealed
// pool away, through libc or raw: for kernels without mseal, and for calls that mseal lets pass.
//
// It checks their addresses, and for madvise the advice: calls for other addresses pass. It refuses
// outright, for all addresses, the calls that reach memory in another way and that an appliance
// does not need (move_pages, migrate_pages, process_madvise, munlockall, shmat with SHM_REMAP, the
// x32 calls). It sees system calls only, so operations that io_uring runs pass. A filter cannot be
// removed; children inherit it, and the same addresses stay refused there.
// Sources: seccomp(2), Documentation/userspace-api/seccomp_filter.rst of the kernel.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

// Puts the filter in force for all threads of the process, for addresses from `begin` up to, but
// not including, `end`. Without CAP_SYS_ADMIN it also sets no_new_privs, for good. The filter
// refuses x86-64 calls only; those of other architectures pass.
// Requires: `begin` is at least 4 GiB.
// Errors (kSystem): the kernel has no seccomp, or another thread has a filter that the calling
// thread lacks.
// Cost: some tens of instructions for each call that it checks; the kernel remembers which calls
// always pass.
Result<void> install_seccomp_filter(uint64_t begin, uint64_t end);

}  // namespace bedplate
