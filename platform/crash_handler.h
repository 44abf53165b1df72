// The handler of crashes: it runs steps, such as those of crash_record.h, before the process ends.
//
//     a signal reports a crash:
//       in a forked child        the child ends, without any step
//       of a second thread       the thread waits: the first one's crash ends the process
//       else                     each step in turn; if a step crashes itself or takes too long, the
//                                next one begins
//     the signal comes again, now without a handler: it ends the process with the usual exit status
//     and, if these are on, with a core dump of the interrupted instruction
//
// All code that runs after a crash is safe in a signal handler and needs no heap. A handler that is
// installed later gets the signals first, and may pass them on: pinned_pool/memory_error.h and
// transport/single_copy/guarded_copy_datapath.h do.
#pragma once

#include <span>

#include "platform/crash_record.h"
#include "platform/result.h"

namespace bedplate {

struct CrashStep {
  void (*run)(const Crash& crash) noexcept;
  bool may_last = false;  // any time; else it is left after two seconds
};

// Handles SIGABRT (an assertion), SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS and SIGTRAP from now on,
// except for those that have a handler or are ignored: these stay the program's, or a sanitizer's.
// Gives the calling thread a stack for signal handlers if it has none, so that a stack overflow is
// handled, too; StackedThread does the same for its threads. A later call replaces the steps, and
// so does a call in a forked child, which handles its own crashes from then on.
// Ownership: `steps` stay to the end of the process. Threads: the main thread, before others start.
// Errors (kSystem): a filter of system calls refuses the handlers.
Result<void> catch_crashes(std::span<const CrashStep> steps) noexcept;

// A step: stops all other threads for good, so that none works on broken state. Each enters the
// handler, and waits there. A thread that blocks the signal goes on.
void stop_other_threads(const Crash& crash) noexcept;

// A step: ends the process by SIGILL, with a core dump. Process 1 can end by a fault only, not by a
// signal that it sends to itself.
[[noreturn]] void end_by_fault(const Crash& crash) noexcept;

}  // namespace bedplate
