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
    BP_LOG_WARNING("%" PRIu64 " more messages about %s within %" PRIu64 " ms were not logged",
                   held_back_, source, period_ns_ / kNsPerMs);
  }
  passed_ = 0;
  held_back_ = 0;
}

}  // namespace bedplate
