#include "pinned_pool/join/join_watch.h"

#include <algorithm>
#include <cerrno>

#include <sys/eventfd.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/forbidden_calls.h"

namespace bedplate {

Result<void> JoinWatch::open(size_t event_count) {
  events_.resize(event_count + 2);
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  stop_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kStopMark}};
  // Tries a wait now: if a sandbox forbids it, the thread could later only stop.
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, stop_event_.number(), &event) == 0 &&
      epoll_wait(epoll_.number(), &event, 1, 0) == 0) {
    return {};
  }
  Error error = error_from_errno("opening an epoll for processes that join");
  if (says_forbidden(errno)) {
    return set_cure_of_forbidden(&error, "eventfd2, epoll_create1, epoll_ctl or epoll_wait");
  }
  return error.set_cure("raise the limit of open files (ulimit -n)");
}

void JoinWatch::stop() noexcept {
  const uint64_t one = 1;
  BP_ASSERT(write(stop_event_.number(), &one, sizeof one) == sizeof one);
}

bool JoinWatch::add(const Fd& fd, uint32_t events, uint64_t data) noexcept {
  epoll_event event = {.events = events, .data = {.u64 = data}};
  return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd.number(), &event) == 0;
}

void JoinWatch::remove(const Fd& fd) noexcept {
  if (fd.is_open()) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd.number(), nullptr);
}

std::span<const epoll_event> JoinWatch::wait(int timeout_ms) noexcept {
  const int count =
      epoll_wait(epoll_.number(), events_.data(), static_cast<int>(events_.size()), timeout_ms);
  BP_ASSERT(count >= 0 || errno == EINTR);
  BP_ASSERT(count <= static_cast<int>(events_.size()));
  return {events_.data(), static_cast<size_t>(std::max(count, 0))};
}

}  // namespace bedplate
