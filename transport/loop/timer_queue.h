// Timers of one shard: a binary heap of intrusive timers, nearest deadline first.
//
// Invariants, which is_valid() looks at: 1. each timer knows its place in the heap. 2. None is due
// before its parent. 3. There are no more than room was reserved for, and each can be called.
//
// The queue allocates once, for as many timers as may be armed at a time; arming and cancelling
// are O(log n) and allocate nothing. Threads: the shard's. Times: of monotonic_ns() (an EventLoop's
// queue), or any clock that does not go back.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/heap_owner.h"
#include "platform/thread_owner.h"

namespace bedplate {

// Ownership: the caller's, at the same address while it is armed; it is cancelled before it goes.
struct Timer {
  // Called once for each time that it is armed, from expire(): of an EventLoop, on its thread, at
  // the first look at the clock after the deadline.
  void (*expired)(void* context) noexcept = nullptr;
  void* context = nullptr;

  bool is_armed() const noexcept { return heap_index != kNotArmed; }

  static constexpr uint32_t kNotArmed = ~uint32_t{0};
  uint64_t deadline_ns = 0;         // the queue's
  uint32_t heap_index = kNotArmed;  // the queue's
  HeapOwner asker = {};             // the queue's: who allocated when it was armed
};

class TimerQueue {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};

  TimerQueue() noexcept = default;
  // `owner`: of the loop whose timers these are; outlives this.
  explicit TimerQueue(const ThreadOwner& owner) noexcept : owner_(&owner) {}

  // Makes room for `count` further timers. Before the seal.
  void reserve_more(uint32_t count) { heap_.reserve(heap_.capacity() + count); }

  // Arms `timer`, or moves it if it is armed. Requires: room was reserved.
  void arm(Timer& timer, uint64_t deadline_ns) noexcept;
  // Disarms `timer`; nothing happens if it is not armed. Requires: it is not armed in another
  // queue.
  void cancel(Timer& timer) noexcept;

  // Calls every timer whose deadline is not after `now_ns`, disarmed before it is called.
  // Returns how many. A timer may arm itself or others.
  uint32_t expire(uint64_t now_ns) noexcept;

  // kNever: none is armed.
  uint64_t next_deadline_ns() const noexcept {
    return heap_.empty() ? kNever : heap_.front()->deadline_ns;
  }

  // Whether the invariants hold. Cost: a look at each timer that is armed.
  bool is_valid() const noexcept;

 private:
  bool is_own_thread() const noexcept { return owner_ == nullptr || owner_->is_caller(); }
  void place(Timer* timer, uint32_t index) noexcept;
  void sift_up(uint32_t index) noexcept;
  void sift_down(uint32_t index) noexcept;

  std::vector<Timer*> heap_;
  const ThreadOwner* owner_ = nullptr;  // nullptr: any thread's
};

}  // namespace bedplate
