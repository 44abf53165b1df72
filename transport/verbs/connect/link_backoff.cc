#include "transport/verbs/connect/link_backoff.h"

#include <algorithm>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

bool LinkBackoff::is_valid() const noexcept {
  const auto [backoff_ns_min, backoff_ns_max] =
      std::minmax(timing_->backoff_ns_min, timing_->backoff_ns_max);
  if (backoff_ns_ > backoff_ns_max || tell_pause_ns_ > timing_->tell_ns_max) return false;
  return !is_down() || backoff_ns_ >= backoff_ns_min;
}

bool LinkBackoff::note_use(bool has_worked, uint64_t now_ns) noexcept {
  const bool is_of_use =
      up_since_ns_ != 0 && (has_worked || now_ns - up_since_ns_ >= timing_->backoff_ns_max);
  if (is_of_use) down_since_ns_ = 0;
  return is_of_use;
}

bool LinkBackoff::go_down() noexcept {
  const bool was_up = up_since_ns_ != 0;
  up_since_ns_ = 0;
  return was_up;
}

void LinkBackoff::stay_down(bool was_up, bool is_cut_off, uint64_t now_ns) noexcept {
  const bool is_new = !is_down();
  if (is_new) {
    down_since_ns_ = now_ns;
    next_ns_ = now_ns;
    backoff_ns_ = timing_->backoff_ns_min;
    tell_ns_ = tell_pause_ns_ = 0;
  }
  if (is_cut_off) backoff_ns_ = timing_->backoff_ns_max;
  if (is_new ? is_cut_off : was_up) delay();
}

void LinkBackoff::delay() noexcept {
  BP_DCHECK(down_since_ns_ != 0 || up_since_ns_ != 0);
  next_ns_ = monotonic_ns() + backoff_ns_;
  backoff_ns_ = std::min(2 * backoff_ns_, timing_->backoff_ns_max);
}

bool LinkBackoff::try_tell(uint64_t now_ns) noexcept {
  if (now_ns < tell_ns_) return false;
  tell_pause_ns_ = std::clamp(2 * tell_pause_ns_, timing_->tell_ns_min, timing_->tell_ns_max);
  tell_ns_ = now_ns + tell_pause_ns_;
  return true;
}

}  // namespace bedplate
