// Time, in nanoseconds: one monotonic clock for everything that is measured, what a thread has
// worked, and the calendar's.
#pragma once

#include <cstdint>
#include <ctime>

#include "platform/units.h"

namespace bedplate {

inline uint64_t clock_ns(clockid_t clock) noexcept {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

// Time since some moment before the process began, the same clock in all processes of the machine.
// Threads: any. Cost: some 25 ns through the vDSO, no system call.
inline uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

// How much of a processor the calling thread has had, within the kernel too. Cost: a system call,
// some 600 ns.
inline uint64_t thread_cpu_ns() noexcept { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// For what is compared between boots, never for lengths of time. Threads: any.
inline uint64_t realtime_ns() noexcept { return clock_ns(CLOCK_REALTIME); }

// Tells the core that this is a spin loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace bedplate
