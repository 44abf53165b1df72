// The descriptors that the connector's thread waits for, by epoll. A token tells each from the
// others: a talk's is its index, the rest have one of the constants.
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
  // Tokens below it are talks'.
  static constexpr uint64_t kFirstToken = kManagerToken;

  // Makes each system call of the thread once: an error can tell that a profile forbids one.
  // Returns false if it failed; errno says why.
  bool open() noexcept;
  // Waits for events of `fd`; a descriptor that is watched already changes to them. Returns false
  // if it failed; errno says why. Requires: open() has succeeded.
  bool watch(int fd, uint32_t events, uint64_t token) noexcept;
  // Requires: `fd` is watched.
  void forget(int fd) noexcept;
  // Returns how many of `events` it has filled; below 1: none.
  int wait(std::span<epoll_event> events, int wait_ms) noexcept;

  // Ends the wait of the thread, now or the next one. Threads: any. Cost: a system call.
  void wake() noexcept;
  // Takes what wake() has left.
  void take_wakes() noexcept;

 private:
  Fd epoll_;
  Fd wake_;
};

}  // namespace bedplate
