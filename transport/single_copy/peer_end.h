// Asks a peer's pidfd whether the peer has exited, to tell `gone` from `refused`. A process id
// would not do: it is reused. Threads: any.
#pragma once

#include <poll.h>

namespace bedplate {

// True from the moment at which the peer can be waited for. Cost: one system call.
inline bool has_ended(int pidfd) noexcept {
  pollfd end{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&end, 1, 0) == 1;
}

}  // namespace bedplate
