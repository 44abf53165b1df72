#include "platform/log_limit.h"

#include <cinttypes>

#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {

bool LogLimit::try_pass(const char* source) noexcept {
  BP_KEEPS_VALID(*this);
  lift(source);
  if (passed_ == count_max_) {
    ++held_back_;
    return false;
  }
  if (passed_++ == 0) period_end_ns_ = monotonic_ns() + period_ns_;
  return true;
}

void LogLimit::lift(const char* source) noexcept {
  BP_KEEPS_VALID(*this);
  if (passed_ == 0 || monotonic_ns() < period_end_ns_) return;
  if (held_back_ > 0) {
    BP_LOG_WARNING("%" PRIu64 " more messages about %s within %s were not logged", held_back_,
                   source, format_rounded_ns(period_ns_).text);
  }
  passed_ = 0;
  held_back_ = 0;
}

bool OncePerSecond::try_pass() noexcept {
  const uint64_t now = monotonic_ns();
  uint64_t until = quiet_until_ns_.load(std::memory_order_relaxed);
  return now >= until && quiet_until_ns_.compare_exchange_strong(until, now + kNsPerSecond);
}

}  // namespace bedplate
