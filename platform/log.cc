#include "platform/log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/product.h"
#include "platform/recent_lines.h"
#include "platform/standard_error.h"
#include "platform/terminal_bar.h"

namespace bedplate {
namespace {

const char* word_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kWarning: return "warning: ";
    case LogLevel::kError: return "error: ";
    case LogLevel::kDebug:
    case LogLevel::kInfo: break;
  }
  return "";
}

constexpr size_t kLineBytesMax = 1024;
constexpr uint64_t kTerminalPatienceNs = kNsPerSecond / 2;
constexpr uint64_t kLastWordsPatienceNs = kNsPerSecond;

constinit std::atomic<uint64_t> dropped_lines{0};
constinit std::atomic<uint64_t> untold_lines{0};  // dropped, and not yet reported
constinit std::atomic<bool> is_stalled{false};    // the last line did not get through
constinit std::atomic<bool> is_cut_off{false};    // the last line was written only in part

// The text of last_words(): the thread that sets has_words writes it.
constinit char words[512] = {};
constinit std::atomic<bool> has_words{false};
constinit std::atomic<size_t> words_bytes{0};

// Returns whether the whole line was written. `patience_ns` 0: no wait, except for a terminal:
// kTerminalPatienceNs, unless the last line did not get through.
bool write_within(const char* line, size_t line_bytes, uint64_t patience_ns) noexcept {
  uint64_t deadline_ns = 0;
  for (size_t done = 0;;) {
    const ssize_t written = write_standard_error_now(line + done, line_bytes - done);
    if (written > 0) done += static_cast<size_t>(written);
    if (done == line_bytes) return true;
    const bool may_wait = written > 0 || errno == EAGAIN || errno == EINTR;
    const uint64_t now = monotonic_ns();
    if (may_wait && deadline_ns == 0) {
      const bool waits_anyway = patience_ns == 0 && !is_stalled.load(std::memory_order_relaxed) &&
                                standard_error_is_terminal();
      deadline_ns = now + (waits_anyway ? kTerminalPatienceNs : patience_ns);
    }
    if (!may_wait || now >= deadline_ns) {
      if (done > 0) is_cut_off.store(true, std::memory_order_relaxed);
      return false;
    }
    wait_for_standard_error(static_cast<int>((deadline_ns - now) / kNsPerMs + 1));
  }
}

// The same, over a bar that may stand in the line: in one call, so that no thread draws a bar in
// between. A line too long for that follows in a second call.
[[gnu::noinline]] bool write_over_bar(const char* line, size_t line_bytes,
                                      uint64_t patience_ns) noexcept {
  constexpr size_t kWipeBytes = sizeof kWipeLine - 1;
  char whole[kWipeBytes + kLineBytesMax];
  std::memcpy(whole, kWipeLine, kWipeBytes);
  if (line_bytes > kLineBytesMax) {
    return write_within(whole, kWipeBytes, patience_ns) &&
           write_within(line, line_bytes, patience_ns);
  }
  std::memcpy(whole + kWipeBytes, line, line_bytes);
  return write_within(whole, kWipeBytes + line_bytes, patience_ns);
}

bool write_whole(const char* line, size_t line_bytes, uint64_t patience_ns) noexcept {
  return is_bar_announced() ? write_over_bar(line, line_bytes, patience_ns)
                            : write_within(line, line_bytes, patience_ns);
}

// Leaves errno alone: a log line is often about a call that has just failed.
void write_line(const char* line, size_t line_bytes, uint64_t patience_ns) noexcept {
  const int errno_before = errno;
  remember_line(line, line_bytes);
  const bool may_follow = tell_dropped_lines() || patience_ns > 0;
  const bool is_written = may_follow && write_whole(line, line_bytes, patience_ns);
  is_stalled.store(!is_written, std::memory_order_relaxed);
  errno = errno_before;
  if (is_written) return;
  dropped_lines.fetch_add(1, std::memory_order_relaxed);
  untold_lines.fetch_add(1, std::memory_order_relaxed);
}

// Ends the line with a newline; `line_bytes` may be more than fits.
size_t end_line(char* line, size_t line_bytes, size_t capacity) noexcept {
  line_bytes = std::min(line_bytes, capacity - 1);
  line[line_bytes++] = '\n';
  return line_bytes;
}

size_t format_line(const Error& error, char* line, size_t capacity) noexcept {
  const auto used = static_cast<size_t>(std::snprintf(line, capacity, "%s: ", product().name));
  format_error(error, line + used, static_cast<unsigned>(capacity - used));
  return end_line(line, std::strlen(line), capacity);
}

}  // namespace

void write_last_line(const char* line, size_t line_bytes) noexcept {
  if (line_bytes > 0 && !has_words.exchange(true, std::memory_order_relaxed)) {
    const size_t bytes = std::min(line_bytes - 1, sizeof words);
    std::memcpy(words, line, bytes);
    words_bytes.store(bytes, std::memory_order_release);  // pairs with last_words
  }
  write_line(line, line_bytes, kLastWordsPatienceNs);
}

std::string_view last_words() noexcept {
  return {words, words_bytes.load(std::memory_order_acquire)};
}

uint64_t dropped_line_count() noexcept { return dropped_lines.load(std::memory_order_relaxed); }

bool tell_dropped_lines() noexcept {
  if (untold_lines.load(std::memory_order_relaxed) == 0) return true;
  const uint64_t count = untold_lines.exchange(0, std::memory_order_relaxed);
  if (count == 0) return true;  // another thread reports them
  const bool begins_anew = is_cut_off.exchange(false, std::memory_order_relaxed);
  char line[128];
  const int bytes = std::snprintf(line, sizeof line,
                                  "%s%s: warning: %" PRIu64 " lines of the log were dropped: "
                                  "nobody read them in time\n",
                                  begins_anew ? "\n" : "", product().name, count);
  if (write_whole(line, static_cast<size_t>(bytes), 0)) return true;
  untold_lines.fetch_add(count, std::memory_order_relaxed);
  if (begins_anew) is_cut_off.store(true, std::memory_order_relaxed);
  return false;
}

void log_line(const LogComponent& component, LogLevel level, const char* format, ...) noexcept {
  if (level < component.level()) return;
  char line[kLineBytesMax];
  const int prefix = std::snprintf(line, sizeof line, "%s: %s", product().name, word_of(level));
  va_list arguments;
  va_start(arguments, format);
  const int text =
      std::vsnprintf(line + prefix, sizeof line - static_cast<size_t>(prefix), format, arguments);
  va_end(arguments);
  write_line(line, end_line(line, static_cast<size_t>(prefix + std::max(text, 0)), sizeof line), 0);
}

void log_error(const Error& error) noexcept {
  char line[kLineBytesMax];
  write_line(line, format_line(error, line, sizeof line), 0);
}

void stop_with(const Error& error) noexcept {
  char line[kLineBytesMax];
  write_last_line(line, format_line(error, line, sizeof line));
  _exit(static_cast<int>(error.kind));
}

}  // namespace bedplate
