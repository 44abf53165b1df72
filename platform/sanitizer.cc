#include "platform/sanitizer.h"

#include "platform/sanitized_build.h"

// Weak: defined exactly if the runtime is linked.
extern "C" __attribute__((weak)) void __asan_init();
extern "C" __attribute__((weak)) void __tsan_init();
extern "C" __attribute__((weak)) void __msan_init();

namespace bedplate {
namespace {

// The pool's addresses are chosen for the sanitizer that the library is built with.
#ifdef BP_THREAD_SANITIZER
constexpr bool kIsBuiltForThreads = true;
#else
constexpr bool kIsBuiltForThreads = false;
#endif

}  // namespace

Sanitizer linked_sanitizer() noexcept {
  if (&__asan_init != nullptr) return {"AddressSanitizer", !kIsBuiltForThreads};
  if (&__tsan_init != nullptr) return {"ThreadSanitizer", kIsBuiltForThreads};
  if (&__msan_init != nullptr) return {"MemorySanitizer", false};
  return {};
}

}  // namespace bedplate
