// A copy that survives a loss of its pages: if a page of the source or the destination cannot be
// had, it stops and says how far it came, instead of ending the process with SIGSEGV or SIGBUS.
//
// For memory that another process can take away at any time. The fault itself is the check: one
// beforehand could be out of date. x86-64.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

// Installs the handlers of both signals, once in a process; asked again, does nothing. Any fault
// but the copy's own is left to the handlers that were there before.
// Requires: handlers that others install later call the ones that they replace.
// Threads: call it before others copy.
Result<void> install_copy_guard() noexcept;

// Returns how many bytes were copied, from the beginning on.
// Requires: install_copy_guard(); the thread does not block SIGSEGV and SIGBUS.
// Cost: one `rep movsb`.
uint64_t guarded_copy(void* to, const void* from, uint64_t bytes) noexcept;

}  // namespace bedplate
