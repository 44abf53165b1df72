// The time that a test waits before it reports a hang. Working code never takes so long, not even
// on a slow, busy or emulated machine: the bound only ends a hang.
#pragma once

#include <cstdint>

#include <poll.h>
#include <sched.h>

#include "platform/clock.h"

namespace bedplate::test {

inline constexpr uint64_t kPatienceNs = 120 * kNsPerSecond;

// Waits until `condition` holds, kPatienceNs at most. Returns whether it holds.
template <typename Condition>
bool eventually(Condition&& condition) {
  const uint64_t end_ns = monotonic_ns() + kPatienceNs;
  while (!condition()) {
    if (monotonic_ns() > end_ns) return false;
    sched_yield();
  }
  return true;
}

// Waits until `fd` has data to read or its other end is closed, kPatienceNs at most. Returns
// whether it has.
inline bool has_input(int fd) noexcept {
  pollfd wanted = {fd, POLLIN, 0};
  return poll(&wanted, 1, static_cast<int>(kPatienceNs / kNsPerMs)) == 1;
}

}  // namespace bedplate::test
