// The calls that led here, for messages about a defect of the program.
//
// Names need tables that allocate and take time; here each call is where it lies in its file, which
// `addr2line -Cfpe FILE OFFSET` turns into function and line, also for position independent and for
// static programs.
#pragma once

namespace bedplate {

// Logs one line for each call, innermost first: "  called from FILE 0xOFFSET". Leaves out its own
// and `skipped` calls more. Threads: any. Allocates nothing once prepare_call_stack() has been
// called: without it the first call in a static program sorts its table of frames, on the heap.
void log_call_stack(unsigned skipped) noexcept;

// Before log_call_stack() is called where nothing may be allocated, as in a signal handler.
// Threads: any.
void prepare_call_stack() noexcept;

}  // namespace bedplate
