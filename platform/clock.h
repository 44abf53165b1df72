// Time: one monotonic clock for everything that is measured, in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

#include "platform/units.h"

namespace bedplate {

// CLOCK_MONOTONIC: time since some moment before the process began, the same clock in all processes
// of the machine. Threads: any. Cost: some 25 ns through the vDSO, no system call.
inline uint64_t monotonic_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

// CLOCK_REALTIME: for what is compared between boots, never for lengths of time. Threads: any.
inline uint64_t realtime_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

// Tells the core that this is a spin loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace bedplate
