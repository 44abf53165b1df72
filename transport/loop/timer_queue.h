// Timers of one shard: a binary heap of intrusive timers, nearest deadline first.
//
// Invariants, which is_valid() looks at: 1. Each timer knows its index in the heap. 2. No timer is
// due before its parent. 3. There are at most as many timers as were reserved, and each has a
// callback.
//
// The queue allocates once, for as many timers as may be armed at a time; arming and cancelling are
// O(log n) and allocate nothing. Threads: the shard's. Times: of monotonic_ns() (an EventLoop's
// queue), or of any clock that does not go back.
//
// A queue with a plan has the timers of services. More than they plan together stop the process. A
// debug build also warns of a service that has more than it plans.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/heap_owner.h"
#include "platform/thread_owner.h"

namespace bedplate {

class ShardPlan;

// Ownership: the caller's, at the same address while it is armed; cancelled before it is freed.
struct Timer {
  // expire() calls it once when the timer is due, and disarms the timer first. In an EventLoop: on
  // its thread, at the first look at the clock after the deadline.
  void (*expired)(void* context) noexcept = nullptr;
  void* context = nullptr;

  bool is_armed() const noexcept { return heap_index != kNotArmed; }

  static constexpr uint32_t kNotArmed = ~uint32_t{0};
  uint64_t deadline_ns = 0;         // the queue's
  uint32_t heap_index = kNotArmed;  // the queue's
  HeapOwner asker = {};             // the queue's: the heap owner when it was armed
};

class TimerQueue {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};

  TimerQueue() noexcept = default;
  // `owner`: the owner of the loop that these timers belong to; outlives the queue.
  explicit TimerQueue(const ThreadOwner& owner) noexcept : owner_(&owner) {}

  // Reserves space for `count` further timers. Before the seal.
  void reserve_more(uint32_t count) { heap_.reserve(heap_.capacity() + count); }
  // Reserves space for the timers that `plan` has. It outlives the queue. Before the seal, once.
  void reserve(ShardPlan& plan);

  // Arms `timer`, or changes its deadline if it is armed. Requires: space was reserved (a service
  // plans its timers: ServicePlan::timers); the timer has a callback, and is not armed in another
  // queue.
  void arm(Timer& timer, uint64_t deadline_ns) noexcept;
  // Disarms `timer`; does nothing if it is not armed. Requires: it is not armed in another queue.
  void cancel(Timer& timer) noexcept;

  // Disarms, then calls, every timer whose deadline is at or before `now_ns`. Returns how many. A
  // callback may arm timers, its own too: those that are due by `now_ns` expire in this call, so a
  // timer that always re-arms itself at or before `now_ns` makes it endless. `askers`, if not
  // nullptr, becomes the set of the heap owners that armed them (shard_plan.h).
  uint32_t expire(uint64_t now_ns, uint32_t* askers = nullptr) noexcept;

  // The earliest deadline; kNever: no timer is armed.
  uint64_t next_deadline_ns() const noexcept {
    return heap_.empty() ? kNever : heap_.front()->deadline_ns;
  }

  // Whether the invariants hold. Cost: a look at each timer that is armed.
  bool is_valid() const noexcept;

 private:
  bool is_own_thread() const noexcept { return owner_ == nullptr || owner_->is_caller(); }
  [[noreturn]] void stop_at_excess() const noexcept;
  void look_at_plan(HeapOwner asker) noexcept;
  void put(Timer* timer, uint32_t index) noexcept;
  void sift_up(uint32_t index) noexcept;
  void sift_down(uint32_t index) noexcept;

  std::vector<Timer*> heap_;
  const ThreadOwner* owner_ = nullptr;  // nullptr: any thread's
  ShardPlan* plan_ = nullptr;           // nullptr: whoever has reserved space may use it
};

}  // namespace bedplate
