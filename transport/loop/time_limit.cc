#include "transport/loop/time_limit.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {

bool TimeLimit::is_valid() const noexcept {
  const Limited* before = nullptr;
  for (const Limited* each = first_; each != nullptr; before = each, each = each->next_) {
    if (!each->is_limited() || each->previous_ != before) return false;
    if (before != nullptr && before->end_ns_ > each->end_ns_) return false;
  }
  if (before != last_) return false;
  if (first_ == nullptr || !is_on()) return !timer_.is_armed() || is_on();
  return timer_.is_armed() && timer_.deadline_ns <= first_->end_ns_;
}

void TimeLimit::create(EventLoop& loop, uint64_t limit_ns,
                       void (*overdue)(void*, Limited&) noexcept, void* context) {
  BP_ASSERT(loop_ == nullptr && overdue != nullptr);
  loop_ = &loop;
  limit_ns_ = limit_ns == 0 ? kForeverNs : limit_ns;
  overdue_ = overdue;
  context_ = context;
  loop.own_timers().reserve_more(1);
}

void TimeLimit::begin(Limited& thing) noexcept {
  BP_DCHECK(loop_ != nullptr && loop_->is_own_thread() && !thing.is_limited());
  BP_KEEPS_VALID(*this);
  thing.end_ns_ = loop_->now_ns() + limit_ns_;
  thing.previous_ = last_;
  thing.next_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_) = &thing;
  last_ = &thing;
  if (is_on() && !timer_.is_armed()) loop_->own_timers().arm(timer_, thing.end_ns_);
}

void TimeLimit::end(Limited& thing) noexcept {
  BP_DCHECK(loop_ != nullptr && loop_->is_own_thread());
  BP_KEEPS_VALID(*this);
  if (thing.is_limited()) unlink(thing);
}

void TimeLimit::unlink(Limited& thing) noexcept {
  (thing.previous_ == nullptr ? first_ : thing.previous_->next_) = thing.next_;
  (thing.next_ == nullptr ? last_ : thing.next_->previous_) = thing.previous_;
  thing.end_ns_ = Limited::kNone;
}

// The timer stays armed for the first during each callback, which may begin and end things.
void TimeLimit::expired() noexcept {
  BP_DCHECK(loop_->is_own_thread());
  TimerQueue& timers = loop_->own_timers();
  const uint64_t now_ns = std::max(loop_->now_ns(), timer_.deadline_ns);
  while (first_ != nullptr && first_->end_ns_ <= now_ns) {
    Limited& late = *first_;
    unlink(late);
    if (first_ != nullptr) timers.arm(timer_, first_->end_ns_);
    overdue_(context_, late);
  }
  if (first_ != nullptr) timers.arm(timer_, first_->end_ns_);
  BP_DCHECK_SLOW(is_valid());
}

}  // namespace bedplate
