#include "platform/assert.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace bedplate {

void assertion_failed(const char* file, int line, const char* what) noexcept {
  // A stack buffer and write(2): the heap may be what is broken.
  char text[512];
  const int length = std::snprintf(text, sizeof text,
                                   "bedplate: %s:%d: assertion failed: %s; this is a defect in "
                                   "the program: please report it\n",
                                   file, line, what);
  const auto bytes = length < 0 ? 0U : static_cast<size_t>(length);
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text, bytes < sizeof text ? bytes : sizeof text - 1);
  std::abort();
}

}  // namespace bedplate
