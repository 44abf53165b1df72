// The crash handler of a process with no system around it. It writes a record: the cause, the call
// stack, the build, and the last log lines. Then the machine ends as [crash] says. The record goes
// to the console and, through the kernel's log, to pstore if the machine has it.
#pragma once

#include "apps/init/image_settings.h"
#include "apps/init/watchdog.h"
#include "platform/result.h"

namespace bedplate {

// Installs the handler for the whole process: SIGABRT (an assertion), SIGSEGV, SIGBUS, SIGILL,
// SIGFPE, SIGSYS and SIGTRAP stop all other threads, and write the record. Opens all files of the
// handler; logs those that it cannot open. The handler stops `watchdog` before a halt and before a
// dump. `watchdog` lives until the machine ends. Called once, on the main thread. Errors: the
// kernel refuses the handler or its stack.
Result<void> catch_crashes(const CrashSettings& settings, Watchdog& watchdog) noexcept;

// From now on a crash also dumps memory. Call it after choose_dump() (core_dump.h): a dump before
// that would only end the first process, and the kernel would decide how the machine ends.
void dump_crashes() noexcept;

// Logs whether the kernel keeps records, and where. Call it after the modules of pstore's stores
// are loaded.
void say_where_records_go() noexcept;

// Logs the records that earlier crashes left in pstore, and removes those that it could read, since
// pstore is small. If a record has no line of Bedplate, such as a kernel panic's, it shows the last
// lines. Returns how many records there were.
int show_old_records() noexcept;

}  // namespace bedplate
