// Crashes of an appliance: each leaves a record in the log and in the counters file
// (platform/crash_record.h), which says the shard and the service. An image's first process also
// ends the machine (apps/init/crash.h).
#pragma once

#include "platform/text_writer.h"

namespace bedplate {

// Catches crashes of this process from now on (platform/crash_handler.h): they stop all threads and
// are recorded, and the process ends as without a handler. If the kernel refuses that, logs the
// error. Threads: the main thread, before others start.
void catch_appliance_crashes() noexcept;

// A crash of the calling thread is one of the shard `name` from now on. Ownership: `name` outlives
// the thread.
void this_thread_is_shard(const char* name) noexcept;

// Writes the place of a crash of the calling thread: ", shard main, service till". The service is
// the one whose code runs, by its heap owner. Fit for signal handlers.
void write_crash_place(TextWriter& to) noexcept;

}  // namespace bedplate
