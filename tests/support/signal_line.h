// Writes a line from a signal handler. Not dprintf(): it allocates, and ThreadSanitizer says so.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include <unistd.h>

namespace bedplate::test {

// To standard error, as printf() would; at most 511 bytes.
[[gnu::format(printf, 1, 2)]] inline void write_line(const char* format, ...) noexcept {
  char line[512];
  va_list values;
  va_start(values, format);
  const int bytes = std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line, std::min(static_cast<size_t>(bytes), sizeof line - 1));
}

}  // namespace bedplate::test
