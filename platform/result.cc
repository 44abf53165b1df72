#include "platform/result.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <sys/resource.h>

namespace bedplate {
namespace {

template <size_t capacity>
void print_into(char (&part)[capacity], const char* format, va_list arguments) noexcept {
  std::vsnprintf(part, capacity, format, arguments);
}

bool answers_errno(const Error& error, int error_number) noexcept {
  const char* description = strerrordesc_np(error_number);
  return description != nullptr && std::strcmp(error.answer, description) == 0;
}

// Any open() can run out of descriptors. The cure is always the same, so it is set here and callers
// need not know it. Returns whether it was set.
bool set_cure_of_descriptors(Error* error) noexcept {
  if (answers_errno(*error, ENFILE)) {
    std::snprintf(error->cure, sizeof error->cure,
                  "the whole system has too many files open: raise sysctl fs.file-max, or end "
                  "programs that hold them");
    return true;
  }
  if (!answers_errno(*error, EMFILE)) return false;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::snprintf(error->cure, sizeof error->cure,
                "raise the limit of open files, which is %llu: ulimit -n %llu",
                static_cast<unsigned long long>(limit.rlim_cur),
                static_cast<unsigned long long>(std::max<rlim_t>(1024, 2 * limit.rlim_cur)));
  return true;
}

}  // namespace

Error& Error::set_doing(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  print_into(doing, format, arguments);
  va_end(arguments);
  return *this;
}

Error& Error::set_answer(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  print_into(answer, format, arguments);
  va_end(arguments);
  return *this;
}

Error& Error::set_cure(const char* format, ...) noexcept {
  if (set_cure_of_descriptors(this)) return *this;
  va_list arguments;
  va_start(arguments, format);
  print_into(cure, format, arguments);
  va_end(arguments);
  return *this;
}

Error& Error::set_answer_errno(int error_number) noexcept {
  // strerrordesc_np needs no locale and no buffer; strerror may allocate.
  const char* description = strerrordesc_np(error_number);
  set_answer("%s", description != nullptr ? description : "unknown error");
  set_cure_of_descriptors(this);
  return *this;
}

Error error_while(const char* doing_format, ...) noexcept {
  Error error;
  va_list arguments;
  va_start(arguments, doing_format);
  print_into(error.doing, doing_format, arguments);
  va_end(arguments);
  return error;
}

Error configuration_error_while(const char* doing_format, ...) noexcept {
  Error error;
  error.kind = ErrorKind::kConfiguration;
  va_list arguments;
  va_start(arguments, doing_format);
  print_into(error.doing, doing_format, arguments);
  va_end(arguments);
  return error;
}

Error error_from_errno(const char* doing_format, ...) noexcept {
  const int error_number = errno;
  Error error;
  va_list arguments;
  va_start(arguments, doing_format);
  print_into(error.doing, doing_format, arguments);
  va_end(arguments);
  error.set_answer_errno(error_number);
  return error;
}

const char* format_error(const Error& error, char* text, unsigned text_bytes) noexcept {
  std::snprintf(text, text_bytes, "%s%s%s%s%s", error.doing, error.answer[0] ? ": " : "",
                error.answer, error.cure[0] ? "; " : "", error.cure);
  return text;
}

}  // namespace bedplate
