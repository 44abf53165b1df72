// Asks a peer's pidfd whether the peer has ended: so `gone` is told from `refused`. A process id
// would not do: it is given again. Threads: any.
#pragma once

#include <poll.h>

namespace bedplate {

// Cost: one system call. True from the moment on when the peer can be waited for.
inline bool has_ended(int pidfd) noexcept {
  pollfd end{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&end, 1, 0) == 1;
}

}  // namespace bedplate
