#include "transport/shm/membership/member_source.h"

#include <cerrno>

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "platform/forbidden_calls.h"
#include "transport/shm/endpoint/shm_provider.h"

namespace bedplate {
namespace {

Error not_made(const char* calls) noexcept {
  Error error = error_from_errno("making the descriptor of a member");
  if (says_forbidden(errno)) return set_cure_of_forbidden(&error, calls);
  return error.set_cure("raise the limit of open files (ulimit -n)");
}

}  // namespace

Result<void> MemberSource::start(Doorbell& doorbell) {
  return watch_.start({parts_.shm.bell()}, doorbell, &parts_.members);
}

void MemberSource::announce_sleep() noexcept {
  parts_.shm.announce_sleep();
  parts_.messenger.prepare_last_look();
  watch_.announce_sleep();
}

void MemberSource::announce_awake() noexcept { parts_.shm.announce_awake(); }

Result<void> MemberDescriptor::create() {
  BP_TRY(doorbell_.create());
  timer_ = Fd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_.is_open() || !try_timer(0)) return not_made("timerfd_create or timerfd_settime");
  either_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {doorbell_.event_fd(), timer_.number()}) {
    epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    if (!either_.is_open() || epoll_ctl(either_.number(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return not_made("epoll_create1 or epoll_ctl");
    }
  }
  return source_.start(doorbell_);
}

bool MemberDescriptor::try_timer(uint64_t after_ns) noexcept {
  const itimerspec once = {.it_interval = {}, .it_value = {0, static_cast<long>(after_ns)}};
  is_timed_ = after_ns != 0;
  return timerfd_settime(timer_.number(), 0, &once, nullptr) == 0;
}

void MemberDescriptor::set_timer(uint64_t after_ns) noexcept { BP_ASSERT(try_timer(after_ns)); }

bool MemberDescriptor::arm() noexcept {
  disarm();
  doorbell_.announce_sleep();
  source_.announce_sleep();
  is_armed_ = true;
  if (source_.poll(kLookBudget) > 0) {
    disarm();
    return false;
  }
  static_assert(RoomWait::kLookMaxNs < kNsPerSecond);
  if (source_.sleep_max_ns() != PollSource::kUnlimitedNs) set_timer(source_.sleep_max_ns());
  return true;
}

// Resets the descriptor last. A ring on its way may still come; then one wait ends early.
void MemberDescriptor::disarm() noexcept {
  if (!is_armed_) return;
  is_armed_ = false;
  if (is_timed_) set_timer(0);
  source_.announce_awake();
  doorbell_.announce_awake();
  doorbell_.acknowledge();
}

}  // namespace bedplate
