// Skips a test by name if this machine or build mode cannot run it.
//
// A skip is never a pass: the runner (tests/main.cc) counts it separately and prints its reason at
// the end. CppUTest's IGNORE_TEST decides at compile time; this decides while the test runs.
#pragma once

#include <string>

#include "platform/sanitized_build.h"

#if defined(BP_ADDRESS_SANITIZER) || defined(BP_THREAD_SANITIZER)
#define BP_SANITIZED 1
#else
#define BP_SANITIZED 0
#endif

namespace bedplate::test {

// The reason why the running test was skipped, or empty. The runner clears it before each test.
inline std::string skip_reason;

// Marks the running test as skipped. Use BP_SKIP, which also leaves the test.
inline void skip_this_test(const char* reason) { skip_reason = reason; }

inline constexpr bool kIsSanitized = BP_SANITIZED;

}  // namespace bedplate::test

#define BP_SKIP(reason)                       \
  do {                                        \
    ::bedplate::test::skip_this_test(reason); \
    return;                                   \
  } while (0)

// Sanitizers have their own malloc, so a test of the pool's heap has nothing to test there.
#define BP_SKIP_UNDER_SANITIZER() \
  if (::bedplate::test::kIsSanitized) BP_SKIP("malloc is the sanitizer's in this build")

// Sanitizers also replace mlock, and lock nothing.
#define BP_SKIP_WITHOUT_MLOCK() \
  if (::bedplate::test::kIsSanitized) BP_SKIP("mlock does nothing in this build")
