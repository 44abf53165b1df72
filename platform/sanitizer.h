// The sanitizer that the program is linked with, which can differ from the one that this library
// is built for.
#pragma once

#include <string_view>

namespace bedplate {

struct Sanitizer {
  std::string_view name = {};      // empty: none that matters here
  bool leaves_pool_range = false;  // whether it leaves the pool's addresses to the program
};

// Detects the runtimes of AddressSanitizer, ThreadSanitizer and MemorySanitizer.
// (UndefinedBehaviorSanitizer's is harmless.) Calls nothing that a sanitizer intercepts, so it may
// be called before the sanitizer is set up.
Sanitizer linked_sanitizer() noexcept;

}  // namespace bedplate
