// The time of an event. The caller passes it to the packet layer, which has no clock of its own.
#pragma once

#include <cstdint>

namespace bedplate {

// All frames of a burst have the same time.
struct NetTime {
  uint64_t now_ns = 0;   // of monotonic_ns(), as EventLoop::now_ns(); never goes back
  uint64_t wall_ns = 0;  // since 1970, for received datagrams; 0: unknown
};

}  // namespace bedplate
