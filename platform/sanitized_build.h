// The sanitizer that this translation unit is compiled for: defines BP_ADDRESS_SANITIZER or
// BP_THREAD_SANITIZER. g++ has a predefined macro for it, clang a feature test.
#pragma once

#include "platform/version.h"

#ifdef __has_feature
#define BP_HAS_FEATURE(name) __has_feature(name)
#else
#define BP_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || BP_HAS_FEATURE(address_sanitizer)
#define BP_ADDRESS_SANITIZER 1
#endif
#if defined(__SANITIZE_THREAD__) || BP_HAS_FEATURE(thread_sanitizer)
#define BP_THREAD_SANITIZER 1
#endif
#undef BP_HAS_FEATURE
