// The log: one line to standard error for each event of boot, control and trouble.
//
// A line is formatted on the stack and leaves in one call, so lines of several threads do not mix
// and nothing is allocated. The data path never logs: it counts.
//
// Logging never blocks: if standard error is a pipe or a socket that nobody reads, lines are
// dropped and counted, and before the next line that gets through a line says how many. There are
// two exceptions. A terminal is slow, so one line waits for it for half a second; further lines do
// not wait until it takes lines again (a terminal stopped by Ctrl-S holds a thread up once). And
// the last words of a process that is about to end wait for a second. platform/standard_error.h
// says how.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/log_component.h"
#include "platform/result.h"

namespace bedplate {

// Writes "bedplate: <text>\n" ("bedplate: warning: ...", "bedplate: error: ..."), 1 KiB at most, if
// the level of `component` lets it pass. Leaves errno as it was. Threads: any, here and below.
void log_line(const LogComponent& component, LogLevel level, const char* format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

// Writes the three parts of `error` as one line, whatever the levels are.
void log_error(const Error& error) noexcept;

// Writes `line`, which ends with a newline, as it is: the last words of a process that is about to
// end. Allocates nothing, locks nothing: fit for signal handlers, as are all of the above
// (vsnprintf of numbers and texts is).
void write_last_line(const char* line, size_t line_bytes) noexcept;

// The number of lines of this process that were dropped so far.
uint64_t dropped_line_count() noexcept;

// Logs how many lines were dropped, if that was not logged yet and there is room now: for a thread
// that runs now and then, so that the report does not wait for the next line. Returns true if
// nothing is left to report.
bool tell_dropped_lines() noexcept;

// Writes `error` and ends the process with the exit code of its kind: for failures before main,
// which nobody can be told otherwise. Nothing is flushed and no destructor runs.
[[noreturn]] void stop_with(const Error& error) noexcept;

}  // namespace bedplate

#ifndef BP_LOG_COMPONENT
#define BP_LOG_COMPONENT ::bedplate::LogComponentName::of_source(__FILE__)
#endif

#define BP_LOG(level, ...) \
  ::bedplate::log_line(::bedplate::log_component<BP_LOG_COMPONENT>, level, __VA_ARGS__)
#define BP_LOG_DEBUG(...) BP_LOG(::bedplate::LogLevel::kDebug, __VA_ARGS__)
#define BP_LOG_INFO(...) BP_LOG(::bedplate::LogLevel::kInfo, __VA_ARGS__)
#define BP_LOG_WARNING(...) BP_LOG(::bedplate::LogLevel::kWarning, __VA_ARGS__)
#define BP_LOG_ERROR(...) BP_LOG(::bedplate::LogLevel::kError, __VA_ARGS__)
