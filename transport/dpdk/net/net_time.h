// The time of an event, which the packet layer is told: it has no clock of its own.
#pragma once

#include <cstdint>

namespace bedplate {

// A burst has one time.
struct NetTime {
  uint64_t now_ns = 0;   // of monotonic_ns(), as EventLoop::now_ns()
  uint64_t wall_ns = 0;  // since 1970, for datagrams that are received; 0: unknown
};

}  // namespace bedplate
