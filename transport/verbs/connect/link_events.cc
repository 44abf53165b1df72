#include "transport/verbs/connect/link_events.h"

#include <cerrno>

#include <sys/eventfd.h>
#include <unistd.h>

#include "platform/assert.h"

namespace bedplate {

bool LinkEvents::open() noexcept {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open()) return false;
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  return wake_.is_open() && wait({&event, 1}, 0) == 0 && watch(wake_.number(), EPOLLIN, kWakeToken);
}

bool LinkEvents::watch(int fd, uint32_t events, uint64_t token) noexcept {
  BP_DCHECK(epoll_.is_open() && fd >= 0);
  epoll_event event = {};
  event.events = events;
  event.data.u64 = token;
  return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) == 0 ||
         (errno == EEXIST && epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void LinkEvents::forget(int fd) noexcept { epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd, nullptr); }

int LinkEvents::wait(std::span<epoll_event> events, int wait_ms) noexcept {
  return epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), wait_ms);
}

void LinkEvents::wake() noexcept {
  const uint64_t one = 1;
  // The write fails only if the event is already readable.
  [[maybe_unused]] const ssize_t written = write(wake_.number(), &one, sizeof one);
}

void LinkEvents::take_wakes() noexcept {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t bytes = read(wake_.number(), &count, sizeof count);
}

}  // namespace bedplate
