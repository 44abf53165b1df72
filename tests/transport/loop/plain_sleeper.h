// A sleeper for event loops of tests: it waits only for the doorbell.
#pragma once

#include <algorithm>
#include <cstdint>

#include <poll.h>

#include "platform/clock.h"
#include "tests/support/patience.h"
#include "transport/loop/event_loop.h"

namespace bedplate::test {

// Sleeps in poll(2) on the doorbell, and records the deadline. A sleep longer than the bound ends
// and sets `overslept`, so that the test fails instead of hanging.
class PlainSleeper final : public Sleeper {
 public:
  static constexpr uint64_t kBoundNs = 2 * kPatienceNs;

  explicit PlainSleeper(EventLoop& loop) noexcept : loop_(loop) {}
  void sleep_until(uint64_t deadline_ns) noexcept override {
    ++sleep_count;
    last_deadline_ns = deadline_ns;
    const uint64_t now = monotonic_ns();
    const uint64_t end = std::min(deadline_ns, now + kBoundNs);
    if (end <= now) return;
    pollfd event = {loop_.doorbell().event_fd(), POLLIN, 0};
    const int outcome = poll(&event, 1, static_cast<int>((end - now) / kNsPerMs + 1));
    if (outcome == 1) loop_.doorbell().acknowledge();
    if (outcome == 0 && end != deadline_ns) overslept = true;
  }
  uint32_t sleep_count = 0;
  uint64_t last_deadline_ns = 0;
  bool overslept = false;

 private:
  EventLoop& loop_;
};

}  // namespace bedplate::test
