// The signals that tell a process to end: SIGTERM and SIGINT. The process blocks them at its start,
// so that they stay pending until checked: by long work during boot, later by the main thread.
#pragma once

#include <csignal>

namespace bedplate {

inline sigset_t stop_signals() noexcept {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Blocks them for the calling thread, and so for all threads that it starts later.
inline void block_stop_signals() noexcept {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// A pending stop signal; 0: none. Requires: they are blocked. Threads: any.
inline int waiting_stop_signal() noexcept {
  sigset_t waiting;
  if (sigpending(&waiting) != 0) return 0;
  if (sigismember(&waiting, SIGTERM) == 1) return SIGTERM;
  return sigismember(&waiting, SIGINT) == 1 ? SIGINT : 0;
}

}  // namespace bedplate
