#include "platform/log.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include "platform/clock.h"

namespace bedplate {
namespace {

LogLevel lowest_level = LogLevel::kInfo;

const char* prefix_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kWarning: return "bedplate: warning: ";
    case LogLevel::kError: return "bedplate: error: ";
    case LogLevel::kDebug:
    case LogLevel::kInfo: break;
  }
  return "bedplate: ";
}

void write_line(char* line, size_t line_bytes, size_t capacity) noexcept {
  line_bytes = std::min(line_bytes, capacity - 1);
  line[line_bytes++] = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, line_bytes);
}

}  // namespace

void set_log_level(LogLevel level) noexcept { lowest_level = level; }

void log_line(LogLevel level, const char* format, ...) noexcept {
  if (level < lowest_level) return;
  char line[1024];
  const int prefix = std::snprintf(line, sizeof line, "%s", prefix_of(level));
  va_list arguments;
  va_start(arguments, format);
  const int text = std::vsnprintf(line + prefix, sizeof line - static_cast<size_t>(prefix),
                                  format, arguments);
  va_end(arguments);
  write_line(line, static_cast<size_t>(prefix + std::max(text, 0)), sizeof line);
}

void log_error(const Error& error) noexcept {
  char line[1024];
  const int prefix = std::snprintf(line, sizeof line, "bedplate: ");
  const auto used = static_cast<size_t>(prefix);
  format_error(error, line + used, static_cast<unsigned>(sizeof line - used));
  size_t bytes = used;
  while (line[bytes] != '\0') ++bytes;
  write_line(line, bytes, sizeof line);
}

void stop_with(const Error& error) noexcept {
  log_error(error);
  _exit(static_cast<int>(error.kind));
}

bool OncePerSecond::try_pass() noexcept {
  const uint64_t now = monotonic_ns();
  uint64_t until = quiet_until_ns_.load(std::memory_order_relaxed);
  return now >= until && quiet_until_ns_.compare_exchange_strong(until, now + kNsPerSecond);
}

}  // namespace bedplate
