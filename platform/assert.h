// Assertions: the two kinds of check that this code base knows.
//
// BP_ASSERT is always on and cheap: a broken invariant stops the process, because going on would
// turn a programming error into lost data. BP_DCHECK is for checks that cost something; it exists
// in debug, asan and tsan builds only. Neither is for bad input: that is an Error (result.h).
#pragma once

#ifndef BP_DEBUG
#define BP_DEBUG 0
#endif

namespace bedplate {

// Prints `file:line: what` to standard error, without allocating, and aborts.
[[noreturn]] void assertion_failed(const char* file, int line, const char* what) noexcept;

}  // namespace bedplate

#define BP_LIKELY(x) __builtin_expect(!!(x), 1)
#define BP_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define BP_ASSERT(condition) \
  (BP_LIKELY(condition) ? (void)0 : ::bedplate::assertion_failed(__FILE__, __LINE__, #condition))

#if BP_DEBUG
#define BP_DCHECK(condition) BP_ASSERT(condition)
#else
// Not evaluated, but still compiled, so that a check cannot rot in release builds.
#define BP_DCHECK(condition) (void)sizeof(!(condition))
#endif
