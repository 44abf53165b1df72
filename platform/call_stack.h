// The call stack of the caller, for messages about a defect of the program.
//
// A search for symbol names allocates and takes time, so each call is logged as a file and an
// offset in it. `addr2line -Cfpe FILE OFFSET` turns these into function and line, also for position
// independent and for static programs.
#pragma once

#include <ucontext.h>

namespace bedplate {

// Logs one line for each call, innermost first, 24 at most: "  called from FILE 0xOFFSET". The line
// has the address alone if no file has it. Leaves out its own call and `skipped` more. Threads:
// any. Allocates nothing after prepare_call_stack(); without it, the first call in a static program
// sorts the program's table of frames on the heap.
void log_call_stack(unsigned skipped) noexcept;

// For a signal handler (with SA_SIGINFO) that got `context`: calls `see` with such a line for each
// call that the signal interrupted. The line is terminated, without a newline.
void for_each_interrupted_call(const ucontext_t& context, void (*see)(const char* line)) noexcept;

// A program that calls these functions where it may not allocate, as in a signal handler, calls
// this before. Threads: any.
void prepare_call_stack() noexcept;

}  // namespace bedplate
