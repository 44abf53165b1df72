#include "platform/log.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
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

constexpr uint64_t kRecentCount = 32;
constexpr uint32_t kBeingWritten = ~uint32_t{0};

struct RecentLine {
  std::atomic<uint32_t> line_bytes{0};
  char text[256];
};
constinit RecentLine recent_lines[kRecentCount] = {};
constinit std::atomic<uint64_t> line_count{0};

void remember(const char* line, size_t line_bytes) noexcept {
  RecentLine& recent = recent_lines[line_count.fetch_add(1, std::memory_order_relaxed) %
                                    kRecentCount];
  // Of two that come to one place at once, kRecentCount lines apart, one is forgotten.
  const uint32_t was = recent.line_bytes.exchange(kBeingWritten, std::memory_order_acquire);
  if (was == kBeingWritten) return;
  const size_t kept_bytes = std::min(line_bytes, sizeof recent.text);
  std::memcpy(recent.text, line, kept_bytes);
  recent.text[kept_bytes - 1] = '\n';
  recent.line_bytes.store(static_cast<uint32_t>(kept_bytes), std::memory_order_release);
}

void write_line(char* line, size_t line_bytes, size_t capacity) noexcept {
  line_bytes = std::min(line_bytes, capacity - 1);
  line[line_bytes++] = '\n';
  write_log_line(line, line_bytes);
}

}  // namespace

void write_log_line(const char* line, size_t line_bytes) noexcept {
  remember(line, line_bytes);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, line_bytes);
}

uint64_t for_each_recent_line(uint64_t first,
                              void (*see)(const char* line, size_t line_bytes, void* context),
                              void* context) noexcept {
  const uint64_t end = line_count.load(std::memory_order_relaxed);
  for (uint64_t i = std::max(first, end - std::min(end, kRecentCount)); i < end; ++i) {
    const RecentLine& recent = recent_lines[i % kRecentCount];
    const uint32_t line_bytes = recent.line_bytes.load(std::memory_order_acquire);
    if (line_bytes != 0 && line_bytes != kBeingWritten) see(recent.text, line_bytes, context);
  }
  return end;
}

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
