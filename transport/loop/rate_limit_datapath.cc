#include "transport/loop/rate_limit_datapath.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {

void RateLimit::create(EventLoop& loop, RateLimitCounters& counters,
                       void (*let_go)(void* context, RateWaiter& waiter) noexcept,
                       void* context) noexcept {
  BP_ASSERT(loop_ == nullptr && let_go != nullptr);
  loop_ = &loop;
  counters_ = &counters;
  let_go_ = let_go;
  context_ = context;
}

bool RateLimit::is_valid() const noexcept {
  const auto is_any = [](const RateWaiter&) { return true; };
  const auto count = waiting_.count(counters_->waiting.read(), is_any);
  if (count != counters_->waiting.read() || !operations_.is_valid() || !bytes_.is_valid()) {
    return false;
  }
  return is_letting_go_ ||
         (timer_.is_armed() == has_waiting() && (rates_.is_limited() || !has_waiting()));
}

void RateLimit::set(const Rates& rates) noexcept {
  BP_DCHECK(loop_->is_own_thread());
  BP_KEEPS_VALID(*this);
  rates_ = rates;
  operations_.set(loop_->now_ns(), rates.operations_per_second, rates.burst_ns);
  bytes_.set(loop_->now_ns(), rates.bytes_per_second, rates.burst_ns);
  counters_->operations_per_second.set(rates.operations_per_second);
  counters_->bytes_per_second.set(rates.bytes_per_second);
  let_some_go();
}

bool RateLimit::try_take(uint64_t bytes) noexcept {
  const uint64_t now_ns = loop_->now_ns();
  if (!operations_.has(now_ns, 1) || !bytes_.has(now_ns, bytes)) return false;
  operations_.take(1);
  bytes_.take(bytes);
  return true;
}

bool RateLimit::try_pass(RateWaiter& waiter, uint64_t bytes) noexcept {
  BP_DCHECK(loop_->is_own_thread());
  BP_KEEPS_VALID(*this);
  const bool is_first = !has_waiting();
  if (is_first && try_take(bytes)) return true;
  waiter.waits_from_ns = loop_->now_ns();
  waiter.waits_for_bytes = bytes;
  waiting_.push(waiter);
  counters_->waiting.add(1);
  if (is_first && !is_letting_go_) arm();
  return false;
}

void RateLimit::charge(uint64_t bytes) noexcept {
  BP_DCHECK(loop_->is_own_thread() && bytes <= TokenBucket::kCostMax);
  bytes_.take(bytes);
}

void RateLimit::arm() noexcept {
  const uint64_t bytes = waiting_.first()->waits_for_bytes;
  loop_->timers().arm(timer_, std::max(operations_.ready_ns(1), bytes_.ready_ns(bytes)));
}

void RateLimit::timer_expired(void* self) noexcept { static_cast<RateLimit*>(self)->let_some_go(); }

void RateLimit::let_some_go() noexcept {
  if (is_letting_go_) return;  // called by let_go(): the loop below goes on
  is_letting_go_ = true;
  while (has_waiting() && try_take(waiting_.first()->waits_for_bytes)) {
    RateWaiter& waiter = waiting_.pop();
    count_end_of_wait();
    const uint64_t now_ns = loop_->now_ns();
    counters_->wait_ns.add(now_ns > waiter.waits_from_ns ? now_ns - waiter.waits_from_ns : 0);
    let_go_(context_, waiter);
  }
  is_letting_go_ = false;
  if (has_waiting()) return arm();
  loop_->timers().cancel(timer_);
}

}  // namespace bedplate
