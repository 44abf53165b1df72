#include "transport/loop/timer_queue.h"

#include <span>

#include "platform/assert.h"
#include "transport/loop/shard_plan.h"

namespace bedplate {

bool TimerQueue::is_valid() const noexcept {
  if (heap_.size() > heap_.capacity()) return false;
  for (uint32_t i = 0; i < heap_.size(); ++i) {
    const Timer& timer = *heap_[i];
    if (timer.heap_index != i || timer.expired == nullptr) return false;
    if (i > 0 && heap_[(i - 1) / 2]->deadline_ns > timer.deadline_ns) return false;
  }
  return true;
}

void TimerQueue::reserve(ShardPlan& plan) {
  BP_ASSERT(plan_ == nullptr);
  plan_ = &plan;
  reserve_more(plan.planned(ShardItem::kTimers));
}

static OwnerCounts count_by_owner(std::span<Timer* const> timers) noexcept {
  OwnerCounts counts = {};
  for (const Timer* timer : timers) ++counts[timer->asker.index];
  return counts;
}

[[gnu::cold]] void TimerQueue::stop_at_excess() const noexcept {
  if (plan_ == nullptr) {
    contract_broken("more timers are armed than space was reserved for, %zu: "
                    "TimerQueue::reserve_more",
                    heap_.capacity());
  }
  OwnerCounts counts = count_by_owner(heap_);
  ++counts[current_heap_owner().index];
  plan_->stop_at_excess(ShardItem::kTimers, counts);
}

void TimerQueue::look_at_plan(HeapOwner asker) noexcept {
  if (plan_ != nullptr) plan_->look_at(ShardItem::kTimers, asker, count_by_owner(heap_));
}

void TimerQueue::put(Timer* timer, uint32_t index) noexcept {
  BP_DCHECK(timer != nullptr && index < heap_.size());
  heap_[index] = timer;
  timer->heap_index = index;
}

void TimerQueue::sift_up(uint32_t index) noexcept {
  Timer* timer = heap_[index];
  while (index > 0) {
    const uint32_t parent = (index - 1) / 2;
    if (heap_[parent]->deadline_ns <= timer->deadline_ns) break;
    put(heap_[parent], index);
    index = parent;
  }
  put(timer, index);
}

void TimerQueue::sift_down(uint32_t index) noexcept {
  Timer* timer = heap_[index];
  const auto count = static_cast<uint32_t>(heap_.size());
  for (;;) {
    uint32_t child = 2 * index + 1;
    if (child >= count) break;
    if (child + 1 < count && heap_[child + 1]->deadline_ns < heap_[child]->deadline_ns) ++child;
    if (timer->deadline_ns <= heap_[child]->deadline_ns) break;
    put(heap_[child], index);
    index = child;
  }
  put(timer, index);
}

void TimerQueue::arm(Timer& timer, uint64_t deadline_ns) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "TimerQueue::arm");
  BP_KEEPS_VALID(*this);
  BP_REQUIRE(timer.expired != nullptr, "a timer without a function is armed: Timer::expired");
  cancel(timer);
  if (BP_UNLIKELY(heap_.size() == heap_.capacity())) stop_at_excess();
  timer.deadline_ns = deadline_ns;
  timer.asker = current_heap_owner();
  heap_.push_back(&timer);
  timer.heap_index = static_cast<uint32_t>(heap_.size() - 1);
  sift_up(timer.heap_index);
  if constexpr (BP_DEBUG != 0) look_at_plan(timer.asker);
}

void TimerQueue::cancel(Timer& timer) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "TimerQueue::cancel");
  if (!timer.is_armed()) return;
  const uint32_t index = timer.heap_index;
  BP_REQUIRE(index < heap_.size() && heap_[index] == &timer,
             "a timer is armed or cancelled on a loop while another one has it: TimerQueue::arm");
  BP_KEEPS_VALID(*this);
  Timer* last = heap_.back();
  heap_.pop_back();
  timer.heap_index = Timer::kNotArmed;
  if (last == &timer) return;
  put(last, index);
  sift_up(index);
  sift_down(last->heap_index);
}

uint32_t TimerQueue::expire(uint64_t now_ns, uint32_t* askers) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "TimerQueue::expire");
  uint32_t count = 0;
  OwnerSet all = 0;
  while (!heap_.empty() && heap_.front()->deadline_ns <= now_ns) {
    Timer& timer = *heap_.front();
    cancel(timer);
    all |= set_of(timer.asker);
    follow_heap_owner(timer.asker);
    timer.expired(timer.context);
    BP_DCHECK_SLOW(is_valid());
    ++count;
  }
  if (askers != nullptr) *askers = all;
  return count;
}

}  // namespace bedplate
