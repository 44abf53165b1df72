// The log: one line to standard error for each event of boot, control and trouble.
//
// A line is formatted on the stack and leaves in one call, so lines of several threads do not mix
// and nothing is allocated. The data path never logs: it counts. The last lines, dropped lines
// included, also stay in memory (recent_lines.h).
//
// Logging does not block: if standard error is a pipe or a socket that nobody reads, lines are
// dropped and counted, and a line before the next line that gets through reports the count. There
// are two exceptions. A terminal is slow, so a line waits up to half a second for it; but while
// lines are being dropped, no line waits (a terminal stopped by Ctrl-S delays a thread once). The
// last line of a process that is about to end waits up to a second. platform/standard_error.h
// describes the writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "platform/log_component.h"
#include "platform/result.h"

namespace bedplate {

// Writes "bedplate: <text>\n" ("bedplate: warning: ...", "bedplate: error: ..."), 1 KiB at most,
// unless `level` is below the level of `component`; "bedplate" is the product's name (product.h). A
// longer line is truncated. Leaves errno as it was. Threads: any, here and below.
void log_line(const LogComponent& component, LogLevel level, const char* format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

// Writes the three parts of `error` as one line, whatever the levels are. Leaves errno as it was.
void log_error(const Error& error) noexcept;

// Writes `line`, which ends with a newline, unchanged: the last line of a process that is about to
// end. Allocates nothing, locks nothing: fit for signal handlers, as are all functions above
// (vsnprintf of numbers and texts is safe there).
void write_last_line(const char* line, size_t line_bytes) noexcept;

// The first line that write_last_line() got in this process, without its newline; empty: none. A
// line of more than 512 bytes is truncated. For the record of a crash: fit for signal handlers.
std::string_view last_words() noexcept;

// The number of lines that this process has dropped so far.
uint64_t dropped_line_count() noexcept;

// Logs the count of dropped lines if some are not reported yet and standard error has space now. A
// thread calls it periodically, so that the report does not wait for the next line. Returns true if
// nothing is left to report. May change errno.
bool tell_dropped_lines() noexcept;

// Writes `error` and ends the process with the exit code of its kind: for failures before main,
// when no caller can handle them. Nothing is flushed and no destructor runs.
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
