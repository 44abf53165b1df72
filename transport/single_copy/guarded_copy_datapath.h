// A copy that survives the loss of its pages: if a page of the source or the destination is
// inaccessible, the copy stops and returns its progress, instead of a SIGSEGV or SIGBUS that ends
// the process.
//
// It serves memory that another process can take away at any time. The fault itself is the check,
// because an earlier check could be out of date. It works on x86-64 only.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

// Installs the handlers of both signals, once in a process; further calls do nothing. A fault that
// is not the copy's own, or a signal that somebody sent, goes to the handler that was there before.
// If that is a handler for one signal only (SA_RESETHAND), it replaces this one for good: if the
// process survives, copies are no longer guarded. Requires: handlers that others install later call
// the handlers that they replace. Threads: called before others copy. Errors (kSystem): the
// system's.
Result<void> install_copy_guard() noexcept;

// Returns how many bytes were copied, from the start. Requires: install_copy_guard(); the thread
// does not block SIGSEGV and SIGBUS. Cost: one `rep movsb`.
uint64_t guarded_copy(void* to, const void* from, uint64_t bytes) noexcept;

}  // namespace bedplate
