// The descriptors that the connector's thread waits for, by epoll. A token identifies each
// descriptor: a talk's token is its index, and the other tokens are the constants below.
//
// Threads: the connector's, and wake() for any.
#pragma once

#include <cstdint>
#include <span>

#include <sys/epoll.h>

#include "platform/file.h"

namespace bedplate {

class LinkEvents {
 public:
  static constexpr uint64_t kWakeToken = UINT64_MAX;
  static constexpr uint64_t kListenerToken = UINT64_MAX - 1;
  static constexpr uint64_t kCompletionToken = UINT64_MAX - 2;
  static constexpr uint64_t kDeviceToken = UINT64_MAX - 3;
  static constexpr uint64_t kManagerToken = UINT64_MAX - 4;
  // Tokens of talks are below it.
  static constexpr uint64_t kFirstToken = kManagerToken;

  // Makes each system call of epoll and eventfd once, so that it fails here if a seccomp profile
  // forbids it. Returns false if one failed; errno says why.
  bool open() noexcept;
  // Waits for `events` of `fd`; changes the events of a descriptor that is already watched. Returns
  // false if it failed; errno says why. Requires: open() has succeeded.
  bool watch(int fd, uint32_t events, uint64_t token) noexcept;
  // Requires: `fd` is watched.
  void forget(int fd) noexcept;
  // Waits for at most `wait_ms`. Returns how many of `events` it has filled; 0 or less: none.
  int wait(std::span<epoll_event> events, int wait_ms) noexcept;

  // Ends the thread's current wait, or its next one. Threads: any. Cost: a system call.
  void wake() noexcept;
  // Clears the wake-ups that wake() has sent.
  void take_wakes() noexcept;

 private:
  Fd epoll_;
  Fd wake_;
};

}  // namespace bedplate
