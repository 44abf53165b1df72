// The events that the owner's control thread waits for: one epoll, and the event that stops the
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/epoll.h>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Threads: the control thread's. open(), stop(), and the first add() of a listener: any.
class JoinWatch {
 public:
  // The data of events that belong to no connection.
  static constexpr uint64_t kStopMark = UINT64_MAX;
  static constexpr uint64_t kListenerMark = UINT64_MAX - 1;

  // Allocates for `event_count` events, and for the stop event and the listener's: the most that
  // one wait() can return.
  // Errors: the system's.
  Result<void> open(size_t event_count);
  // From now on wait() returns an event with kStopMark.
  void stop() noexcept;

  // Watches `fd` for `events`, which arrive with `data`. Returns false with errno set.
  bool add(const Fd& fd, uint32_t events, uint64_t data) noexcept;
  // Call it before the file is closed: a copy in a forked child would keep the file in the epoll.
  void remove(const Fd& fd) noexcept;

  // Waits for events; -1: without a timeout. The events are valid until the next call. There are
  // none after the timeout or a signal.
  std::span<const epoll_event> wait(int timeout_ms) noexcept;

 private:
  Fd epoll_;
  Fd stop_event_;
  std::vector<epoll_event> events_;
};

}  // namespace bedplate
