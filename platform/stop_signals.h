// The signals that tell a process to end: SIGTERM and SIGINT. The process blocks them at its
// beginning, so that they wait until somebody looks: its main thread once it serves, and long work
// before that.
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

// Blocks them for the calling thread, and so for all threads that it starts from now on.
inline void block_stop_signals() noexcept {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// A stop signal that waits; 0: none does. Requires: they are blocked. Threads: any.
inline int waiting_stop_signal() noexcept {
  sigset_t waiting;
  if (sigpending(&waiting) != 0) return 0;
  if (sigismember(&waiting, SIGTERM) == 1) return SIGTERM;
  return sigismember(&waiting, SIGINT) == 1 ? SIGINT : 0;
}

}  // namespace bedplate
