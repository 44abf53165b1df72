// A crash of the first process: after its record (platform/crash_record.h) the machine ends as
// [crash] says. The last log lines and the record go to the console and, through the kernel's log,
// to pstore if the machine has it.
#pragma once

#include "apps/init/image_settings.h"
#include "apps/init/watchdog.h"
#include "platform/result.h"

namespace bedplate {

// Catches crashes (platform/crash_handler.h) from now on: all other threads stop, the record is
// written, and the machine ends. Opens all files that this needs; logs those that it cannot open.
// A crash stops `watchdog` before a halt and before a dump. `watchdog` lives until the machine
// ends. Called once, on the main thread. Errors: those of catch_crashes().
Result<void> end_machine_at_crash(const CrashSettings& settings, Watchdog& watchdog) noexcept;

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
