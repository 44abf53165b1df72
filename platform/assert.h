// Assertions.
//
// BP_ASSERT is always on and cheap: a broken invariant stops the process, because going on would
// turn a programming error into lost data. Debug, asan and tsan builds have three more, for checks
// that cost something: BP_DCHECK, BP_DCHECK_SLOW for a walk through a whole structure (is_valid()),
// and BP_KEEPS_VALID, which does such a walk before and after a change of state. Bad input is never
// asserted: it is an Error (result.h).
//
// BP_REQUIRE is an assertion about the caller of a public function. It prints no condition but
// words for the caller's author: the mistake, and the function or the plan that has the rule.
// BP_DREQUIRE is the same for debug builds alone, where a check would cost a release something.
#pragma once

#include "platform/version.h"

#ifndef BP_DEBUG
#define BP_DEBUG 0
#endif

namespace bedplate {

// Logs `file`, `line` and `what` in one line (write_last_line in log.h), without allocating, and
// aborts.
[[noreturn]] void assertion_failed(const char* file, int line, const char* what) noexcept;

// Logs "bedplate: broken contract: " and the text in one line, without allocating, and aborts.
[[noreturn]] void contract_broken(const char* format, ...) noexcept
    __attribute__((cold, format(printf, 1, 2)));

}  // namespace bedplate

#define BP_LIKELY(x) __builtin_expect(!!(x), 1)
#define BP_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define BP_ASSERT(condition) \
  (BP_LIKELY(condition) ? (void)0 : ::bedplate::assertion_failed(__FILE__, __LINE__, #condition))

// BP_REQUIRE(condition, "more of them were made than %s plans: Plan::count", name)
#define BP_REQUIRE(condition, ...) \
  (BP_LIKELY(condition) ? (void)0 : ::bedplate::contract_broken(__VA_ARGS__))

#if BP_DEBUG
#define BP_DCHECK(condition) BP_ASSERT(condition)
#define BP_DREQUIRE(condition, ...) BP_REQUIRE(condition, __VA_ARGS__)
#else
// Not evaluated, but still compiled, so that a check cannot rot in release builds.
#define BP_DCHECK(condition) (void)sizeof(!(condition))
#define BP_DREQUIRE(condition, ...) (void)sizeof((BP_REQUIRE(condition, __VA_ARGS__), 0))
#endif
#define BP_DCHECK_SLOW(condition) BP_DCHECK(condition)

// Checks that `object` is valid here and at the end of the scope; once in a scope. Requires: the
// object outlives the scope.
#if BP_DEBUG
#define BP_KEEPS_VALID(object) \
  const ::bedplate::ValidAround bp_valid_around(object, __FILE__, __LINE__)
#else
#define BP_KEEPS_VALID(object) BP_DCHECK((object).is_valid())
#endif

namespace bedplate {

template <typename Object>
class ValidAround {
 public:
  ValidAround(const Object& object, const char* file, int line) noexcept
      : object_(object), file_(file), line_(line) {
    if (!object.is_valid()) assertion_failed(file, line, "is_valid() before a change");
  }
  ValidAround(const ValidAround&) = delete;
  ValidAround& operator=(const ValidAround&) = delete;
  ~ValidAround() {
    if (!object_.is_valid()) assertion_failed(file_, line_, "is_valid() after a change");
  }

 private:
  const Object& object_;
  const char* file_;
  int line_;
};

}  // namespace bedplate
