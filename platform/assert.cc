#include "platform/assert.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "platform/log.h"

namespace bedplate {

void assertion_failed(const char* file, int line, const char* what) noexcept {
  // A stack buffer and no stream: the heap may be broken.
  char text[512];
  const int length = std::snprintf(text, sizeof text,
                                   "bedplate: %s:%d: assertion failed: %s; this is a defect in "
                                   "the program: please report it\n",
                                   file, line, what);
  if (length > 0) {
    const size_t bytes = std::min(static_cast<size_t>(length), sizeof text - 1);
    text[bytes - 1] = '\n';  // also of a truncated line
    write_last_line(text, bytes);
  }
  std::abort();
}

}  // namespace bedplate
