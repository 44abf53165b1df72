// The calls that led here, for messages about a defect of the program.
//
// Names need tables that allocate and take time; here each call is a file and an offset in it.
// `addr2line -Cfpe FILE OFFSET` turns these into function and line, also for position independent
// and for static programs.
#pragma once

namespace bedplate {

// Logs one line for each call, innermost first: "  called from FILE 0xOFFSET". Leaves out its own
// and `skipped` calls more. Threads: any. Allocates nothing once prepare_call_stack() has been
// called: without it the first call in a static program sorts its table of frames, on the heap.
void log_call_stack(unsigned skipped) noexcept;

// Requires: called before any log_call_stack() in a place that may not allocate, as a signal
// handler. Threads: any.
void prepare_call_stack() noexcept;

}  // namespace bedplate
