// The call stack of the caller, for messages about a defect of the program.
//
// Symbol names need tables that allocate and take time, so each call is logged as a file and an
// offset in it. `addr2line -Cfpe FILE OFFSET` turns these into function and line, also for position
// independent and for static programs.
#pragma once

namespace bedplate {

// Logs one line for each call, innermost first: "  called from FILE 0xOFFSET". Leaves out its own
// call and `skipped` more. Threads: any. Allocates nothing after prepare_call_stack(); without it,
// the first call in a static program sorts its table of frames on the heap.
void log_call_stack(unsigned skipped) noexcept;

// Must run before the first log_call_stack() in code that may not allocate, such as a signal
// handler. Threads: any.
void prepare_call_stack() noexcept;

}  // namespace bedplate
