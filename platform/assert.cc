#include "platform/assert.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "platform/log.h"
#include "platform/product.h"

namespace bedplate {
namespace {

// Ends `text`, of which `length` bytes were printed or would have been, with a newline.
[[noreturn]] void stop_with_line(char* text, size_t capacity, int length) noexcept {
  if (length > 0) {
    const size_t bytes = std::min(static_cast<size_t>(length), capacity - 1);
    text[bytes - 1] = '\n';  // also of a truncated line
    write_last_line(text, bytes);
  }
  std::abort();
}

}  // namespace

void assertion_failed(const char* file, int line, const char* what) noexcept {
  // A stack buffer and no stream: the heap may be broken.
  char text[512];
  const int length = std::snprintf(text, sizeof text,
                                   "%s: %s:%d: assertion failed: %s; this is a defect in the "
                                   "program: please report it\n",
                                   product().name, file, line, what);
  stop_with_line(text, sizeof text, length);
}

void contract_broken(const char* format, ...) noexcept {
  char text[512];
  const int begin = std::snprintf(text, sizeof text, "%s: broken contract: ", product().name);
  const auto used = static_cast<size_t>(begin);
  va_list arguments;
  va_start(arguments, format);
  const int more = std::vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  stop_with_line(text, sizeof text, begin + std::max(more, 0) + 1);  // with the newline
}

}  // namespace bedplate
