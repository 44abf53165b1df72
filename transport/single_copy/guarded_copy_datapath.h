// A copy that survives the loss of its pages: if a page of the source or the destination is
// inaccessible, the copy stops and returns its progress, instead of a SIGSEGV or SIGBUS that ends
// the process.
//
// For memory that another process can take away at any time. The fault itself is the check: an
// earlier check could be out of date. x86-64.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

// Installs the handlers of both signals, once in a process; further calls do nothing. Faults other
// than the copy's own go to the handlers that were there before. Requires: handlers that others
// install later call the ones that they replace. Threads: called before others copy.
Result<void> install_copy_guard() noexcept;

// Returns how many bytes were copied, from the start. Requires: install_copy_guard(); the thread
// does not block SIGSEGV and SIGBUS. Cost: one `rep movsb`.
uint64_t guarded_copy(void* to, const void* from, uint64_t bytes) noexcept;

}  // namespace bedplate
