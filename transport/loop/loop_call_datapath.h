// Calls that any thread asks an event loop to make on the loop's own thread: for threads that have
// no lane to that loop. Neither side allocates or locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "alloc/heap_owner.h"
#include "platform/assert.h"
#include "platform/cache_line.h"

namespace bedplate {

// A call. Ownership: the submitter's, at the same address until it runs; its function may free it.
struct LoopCall {
  void (*function)(void* context) noexcept = nullptr;  // neither blocks nor polls
  void* context = nullptr;

  std::atomic<bool> is_pending{false};  // the queue's, as are the fields below
  HeapOwner asker = {};                 // the heap owner when it was pushed
  LoopCall* next = nullptr;
};

// Invariants: 1. A call is pending exactly while it is queued: run() checks each. 2. Each call has
// a function: push() checks it.
//
// The calls of one loop: a stack onto which threads push, and which the loop takes whole. Nobody
// pops a single node, so ABA does no harm.
class LoopCallQueue {
 public:
  // Returns false if the call is already pending: then it runs once, after this push(), and sees
  // all that this thread wrote before. Threads: any.
  bool push(LoopCall& call) noexcept {
    BP_REQUIRE(call.function != nullptr, "a call without a function is submitted to a loop: "
                                         "LoopCall::function");
    // Pairs with the exchange in run(): the call sees all that was written before either of two
    // pushes.
    if (call.is_pending.exchange(true, std::memory_order_acq_rel)) return false;
    call.asker = current_heap_owner();
    call.next = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(call.next, &call, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
    return true;
  }

  // Runs the queued calls in the order in which they were pushed, and returns how many. Calls that
  // they push wait for the next run(). If there were some, adds the heap owners that pushed them to
  // `*askers`, a bit for each index, unless it is nullptr. Threads: the loop's.
  uint32_t run(uint32_t* askers = nullptr) noexcept {
    // A plain load first: the cache line stays with the loop until another thread pushes.
    if (newest_.load(std::memory_order_relaxed) == nullptr) return 0;
    LoopCall* oldest = nullptr;
    for (LoopCall* call = newest_.exchange(nullptr, std::memory_order_acquire); call != nullptr;) {
      LoopCall* const older = call->next;
      BP_DCHECK(older != call && call->is_pending.load(std::memory_order_relaxed));
      call->next = oldest;
      oldest = call;
      call = older;
    }
    uint32_t count = 0;
    uint32_t all = 0;
    while (oldest != nullptr) {
      LoopCall& call = *oldest;
      oldest = call.next;
      // Copies first: after the exchange below the call may be pushed again or freed.
      const auto function = call.function;
      void* const context = call.context;
      const HeapOwner asker = call.asker;
      const bool was_pending = call.is_pending.exchange(false, std::memory_order_acq_rel);
      BP_ASSERT(was_pending);
      all |= uint32_t{1} << asker.index;
      follow_heap_owner(asker);
      function(context);
      ++count;
    }
    if (askers != nullptr) *askers |= all;
    return count;
  }

 private:
  alignas(kCacheLineBytes) std::atomic<LoopCall*> newest_{nullptr};
};

}  // namespace bedplate
