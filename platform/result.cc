#include "platform/result.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace bedplate {
namespace {

template <size_t capacity>
void print_into(char (&part)[capacity], const char* format, va_list arguments) noexcept {
  std::vsnprintf(part, capacity, format, arguments);
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
  va_list arguments;
  va_start(arguments, format);
  print_into(cure, format, arguments);
  va_end(arguments);
  return *this;
}

Error& Error::set_answer_errno(int error_number) noexcept {
  // strerrordesc_np needs no locale and no buffer; strerror may allocate.
  const char* description = strerrordesc_np(error_number);
  return set_answer("%s", description != nullptr ? description : "unknown error");
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
