// The crash handler of a process with no system around it: it writes a record of what happened,
// where, in which build, and of the last log lines; then the machine ends as [crash] says. The
// record goes to the console and, through the kernel's log, to pstore where there is one.
#pragma once

#include "apps/init/image_settings.h"
#include "apps/init/watchdog.h"
#include "platform/result.h"

namespace bedplate {

// From now on, for the whole process: SIGABRT (an assertion), SIGSEGV, SIGBUS, SIGILL, SIGFPE,
// SIGSYS and SIGTRAP stop all other threads, and write the record. Opens beforehand what it takes.
// Stops `watchdog` if the machine is to halt, or memory to be dumped. `watchdog` outlives a crash.
Result<void> catch_crashes(const CrashSettings& settings, Watchdog& watchdog) noexcept;

// From now on a crash is dumped, too: its preparations are done (core_dump.h). Before, a dump would
// only end the first process, and the kernel would decide how the machine ends.
void dump_crashes() noexcept;

// Logs whether the kernel will keep records, and where: the modules of stores are loaded.
void say_where_records_go() noexcept;

// Logs the records that earlier crashes left in pstore, and removes those that it could read: there
// is little room. Shows the last lines of a record without a line of ours, such as a kernel
// panic's. Returns how many records there were.
int show_old_records() noexcept;

}  // namespace bedplate
