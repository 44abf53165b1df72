// Time in nanoseconds: one monotonic clock for all measurements, a thread's processor time, and the
// calendar.
#pragma once

#include <cstdint>
#include <ctime>

#include "platform/units.h"

namespace bedplate {

// Nanoseconds of any clock of clock_gettime(2). Threads: any.
inline uint64_t clock_ns(clockid_t clock) noexcept {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

// Time since some moment before the process began; all processes of the machine share this clock.
// Threads: any. Cost: some 25 ns through the vDSO, no system call.
inline uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

// The processor time of the calling thread, kernel time included. Cost: a system call, some 600 ns.
inline uint64_t thread_cpu_ns() noexcept { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// For times that are compared between boots, never for durations. Threads: any.
inline uint64_t realtime_ns() noexcept { return clock_ns(CLOCK_REALTIME); }

// Ticks of the core's own clock (on x86-64 the TSC), a few hundred picoseconds each: for durations
// within one thread, where clock_ns is too slow. Always 0 if kHasCpuTicks is false.
#if defined(__x86_64__)
inline constexpr bool kHasCpuTicks = true;
inline uint64_t cpu_ticks() noexcept { return __builtin_ia32_rdtsc(); }
#else
inline constexpr bool kHasCpuTicks = false;
inline uint64_t cpu_ticks() noexcept { return 0; }
#endif

// Tells the core that this is a spin loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace bedplate
