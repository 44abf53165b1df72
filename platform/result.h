// Error and Result<T>: the failures of boot and control paths.
//
// An Error has the three parts of every message of Bedplate: the operation, the system's answer,
// the cure. It is trivially copyable and carries its text inside, in fixed arrays: the message
// needs its numbers (how many pages are free, how many are needed), and an Error must be possible
// when the heap is exhausted. Data paths do not use this: full, empty and again are ordinary values
// there. Threads: any, each object one at a time. Nothing is allocated.
#pragma once

#include <cstdarg>
#include <new>
#include <type_traits>
#include <utility>

#include "platform/assert.h"

namespace bedplate {

// The exit code of the process when this error reaches main.
enum class ErrorKind : int {
  kSystem = 1,         // boot or run failed
  kConfiguration = 2,  // usage or configuration: nothing was started
};

// Texts: terminated; an empty text was not set.
struct Error {
  ErrorKind kind = ErrorKind::kSystem;
  char doing[192] = {};
  char answer[256] = {};
  char cure[320] = {};

  // Each sets one part, printf style, truncated at the part's capacity. Returns *this. If the
  // answer is EMFILE's or ENFILE's text, set_cure() ignores its arguments: it sets the cure that
  // raises the limit of open files.
  Error& set_doing(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));
  Error& set_answer(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));
  Error& set_cure(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

  // Sets `answer` to the text of `error_number` (an errno value). For EMFILE and ENFILE it also
  // sets `cure`.
  Error& set_answer_errno(int error_number) noexcept;
};
static_assert(std::is_trivially_copyable_v<Error>);

// An Error of kind kSystem; the format is its `doing` part. The answer and the cure follow:
//   return error_while("opening %s", path).set_answer("it is a FIFO").set_cure("name a file");
[[nodiscard]] Error error_while(const char* doing_format, ...) noexcept
    __attribute__((format(printf, 1, 2)));
// The same, of kind kConfiguration.
[[nodiscard]] Error configuration_error_while(const char* doing_format, ...) noexcept
    __attribute__((format(printf, 1, 2)));

// An Error of kind kSystem whose answer is the text of the present errno, as by set_answer_errno().
[[nodiscard]] Error error_from_errno(const char* doing_format, ...) noexcept
    __attribute__((format(printf, 1, 2)));

// Writes "doing: answer; cure" (without empty parts and their separators) into `text`, always
// terminated. Returns `text`.
const char* format_error(const Error& error, char* text, unsigned text_bytes) noexcept;

// A value or an Error. Asking for the absent one ends the process (BP_ASSERT).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept : ok_(true) { new (&value_) T(std::move(value)); }       // NOLINT
  Result(const Error& error) noexcept : ok_(false) { new (&error_) Error(error); }  // NOLINT
  Result(Result&& other) noexcept : ok_(other.ok_) {
    if (ok_) {
      new (&value_) T(std::move(other.value_));
    } else {
      new (&error_) Error(other.error_);
    }
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  Result& operator=(Result&&) = delete;
  ~Result() {
    if (ok_) value_.~T();
  }

  bool ok() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  T& value() noexcept {
    BP_ASSERT(ok_);
    return value_;
  }
  // Moves the value out; ok() stays true.
  T take() noexcept {
    BP_ASSERT(ok_);
    return std::move(value_);
  }
  const Error& error() const noexcept {
    BP_ASSERT(!ok_);
    return error_;
  }

 private:
  union {
    T value_;
    Error error_;
  };
  bool ok_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() noexcept : ok_(true) {}
  Result(const Error& error) noexcept : error_(error), ok_(false) {}  // NOLINT

  bool ok() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  const Error& error() const noexcept {
    BP_ASSERT(!ok_);
    return error_;
  }

 private:
  Error error_;
  bool ok_;
};

}  // namespace bedplate

// If `expression` (a Result) has an error, returns that error to the caller.
#define BP_TRY(expression)                                 \
  do {                                                     \
    auto&& bp_try_result = (expression);                   \
    if (!bp_try_result.ok()) return bp_try_result.error(); \
  } while (0)

// Assigns the value of an expression (a Result) to `target`, which may be a declaration, or returns
// its error to the caller: BP_TRY_ASSIGN(const User user, find_user(name));
// It expands to several statements, so it needs braces behind an `if`.
#define BP_TRY_ASSIGN(target, ...) BP_TRY_ASSIGN_LINE(__LINE__, target, __VA_ARGS__)
#define BP_TRY_ASSIGN_LINE(line, ...) BP_TRY_ASSIGN_NAMED(line, __VA_ARGS__)
#define BP_TRY_ASSIGN_NAMED(line, ...) BP_TRY_ASSIGN_BY(bp_try_result_##line, __VA_ARGS__)
#define BP_TRY_ASSIGN_BY(result, target, ...) \
  auto result = (__VA_ARGS__);                \
  if (!result.ok()) return result.error();    \
  target = result.take()
