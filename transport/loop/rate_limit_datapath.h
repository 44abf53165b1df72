// Lets requests go on at a limited rate, in their order: operations a second, and bytes a second.
//
//     try_pass(waiter, bytes):  nobody waits, and both buckets have enough: take, true
//                               else: into the queue; the first in it arms the timer; false
//     the timer expires:        while the first may go: take, let_go(first)
//                               arm the timer for the one that is now the first
//     set(rates):               the same as when the timer expires, by the new rates
//     charge(bytes):            take, perhaps on credit: those behind wait until it is paid
//
// A request that wants more bytes than the burst goes when the bucket is full, and leaves a debt
// (token_bucket.h). So does one whose bytes are known and charged only after it went. Nothing
// polls: while requests wait, the loop sleeps until the first may go; after a charge it may wake
// once too early.
//
// Invariants, which is_valid() checks: 1. The timer is armed exactly while requests wait. 2. Nobody
// waits without a limit. 3. The counter of waiting requests is their number. 1 and 2 do not hold
// during let_go().
// Threads: the loop's. Nothing is allocated.
#pragma once

#include <cstdint>

#include "platform/counter.h"
#include "platform/histogram.h"
#include "platform/tail_queue.h"
#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/timer_queue.h"
#include "transport/loop/token_bucket.h"

namespace bedplate {

// 0: no limit. At most TokenBucket::kRateMax a second, and kBurstNsMax.
struct Rates {
  uint64_t operations_per_second = 0;
  uint64_t bytes_per_second = 0;
  uint64_t burst_ns = 100 * kNsPerMs;  // the burst is what comes in this time

  bool is_limited() const noexcept { return (operations_per_second | bytes_per_second) != 0; }
  bool operator==(const Rates&) const = default;
};

// The shard of the loop writes them.
struct RateLimitCounters {
  Counter operations_per_second;  // the present limit; 0: none
  Counter bytes_per_second;
  Counter waiting;
  Histogram wait_ns;  // of the requests that had to wait, once they went on
};

// The base of a request that can wait. Ownership: the caller's, at the same address meanwhile.
struct RateWaiter {
  RateWaiter* next_waiter = nullptr;
  uint64_t waits_from_ns = 0;
  uint64_t waits_for_bytes = 0;
};

class RateLimit {
 public:
  using Waiters = TailQueue<&RateWaiter::next_waiter>;

  RateLimit() noexcept = default;
  RateLimit(const RateLimit&) = delete;
  RateLimit& operator=(const RateLimit&) = delete;

  // It has no limit yet. `let_go(context, waiter)` is called for each that has waited, in their
  // order, from the timer, set() or remove(), not from try_pass(). It may call all functions but
  // set(), for the same waiter too. Requires: called once; the loop has a service's timer for this.
  // Ownership: all outlive this object.
  void create(EventLoop& loop, RateLimitCounters& counters,
              void (*let_go)(void* context, RateWaiter& waiter) noexcept, void* context) noexcept;

  // Changes the rates. Each budget keeps its tokens or its debt; one that had no limit begins full.
  // Lets those go that may.
  void set(const Rates& rates) noexcept;
  const Rates& rates() const noexcept { return rates_; }

  // Returns true if the request may go on. If not, it waits, and let_go() is called for it later.
  // Requires: `bytes` is at most TokenBucket::kCostMax; it does not wait anywhere. Cost: two
  // multiplications.
  bool try_pass(RateWaiter& waiter, uint64_t bytes) noexcept;
  // Takes the bytes of a request that has passed without them. Requires: as try_pass(). Cost: a
  // multiplication.
  void charge(uint64_t bytes) noexcept;

  // Takes those out of the queue for which `is_meant(waiter)` is true, and returns them; the others
  // keep their order, and those that may go now go. Cost: a look at each.
  template <typename IsMeant>
  [[nodiscard]] Waiters remove(IsMeant&& is_meant) noexcept {
    Waiters removed;
    for (Waiters all = waiting_.take(); !all.is_empty();) {
      RateWaiter& waiter = all.pop();
      const bool is_removed = is_meant(waiter);
      (is_removed ? removed : waiting_).push(waiter);
      if (is_removed) count_end_of_wait();
    }
    let_some_go();
    return removed;
  }

  bool has_waiting() const noexcept { return !waiting_.is_empty(); }
  // Whether the invariants hold. Cost: a look at each that waits.
  bool is_valid() const noexcept;

 private:
  static void timer_expired(void* self) noexcept;
  bool try_take(uint64_t bytes) noexcept;
  void let_some_go() noexcept;
  void arm() noexcept;
  void count_end_of_wait() noexcept { counters_->waiting.set(counters_->waiting.read() - 1); }

  EventLoop* loop_ = nullptr;
  RateLimitCounters* counters_ = nullptr;
  void (*let_go_)(void* context, RateWaiter& waiter) noexcept = nullptr;
  void* context_ = nullptr;
  Rates rates_;
  TokenBucket operations_;
  TokenBucket bytes_;
  Waiters waiting_;
  bool is_letting_go_ = false;
  Timer timer_ = {&RateLimit::timer_expired, this};
};

}  // namespace bedplate
