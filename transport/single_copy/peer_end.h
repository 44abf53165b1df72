// Asks a peer's pidfd whether the peer has exited, to tell `gone` from `refused`. A process id does
// not serve, because the kernel reuses it. Threads: any.
#pragma once

#include <poll.h>

namespace bedplate {

// Returns true once the peer has exited, also before its parent has waited for it. Cost: one system
// call.
inline bool has_ended(int pidfd) noexcept {
  pollfd end{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&end, 1, 0) == 1;
}

}  // namespace bedplate
