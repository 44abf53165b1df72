// What becomes of a crash when there is no system around the process that would see it: a record of
// what happened, where, in which build, and what was logged last; then the machine ends as [crash]
// says. The record goes to the console and, through the kernel's log, to pstore where there is one.
#pragma once

#include "apps/boot/configuration.h"
#include "apps/init/watchdog.h"
#include "platform/result.h"

namespace bedplate {

// From now on, for the whole process: SIGABRT (an assertion), SIGSEGV, SIGBUS, SIGILL, SIGFPE,
// SIGSYS and SIGTRAP stop all other threads, and write the record. Opens beforehand what it takes.
// `watchdog` is stopped where the machine is to halt, or memory to be dumped. It outlives a crash.
Result<void> catch_crashes(const CrashSettings& settings, Watchdog& watchdog) noexcept;

// From now on a crash is dumped, too: what it takes is in place (core_dump.h). Before, to try would
// only end the first process, and the kernel would decide what becomes of the machine.
void dump_crashes() noexcept;

// Logs whether the kernel will keep records, and where: the modules of stores are loaded.
void say_where_records_go() noexcept;

// Logs what the records say that earlier crashes left in pstore, and removes those that could be
// read: there is little room. Of a record that has nothing of ours, such as a panic of the kernel,
// the last lines. Returns how many there were.
int show_old_records() noexcept;

}  // namespace bedplate
