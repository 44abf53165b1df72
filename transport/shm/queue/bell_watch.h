// Waits on futex bells for a shard that sleeps elsewhere.
//
// An event loop sleeps in its socket backend, which cannot wait on futexes. Members of other
// processes can ring only futexes: an eventfd would have to be passed for each pair, and its ring
// costs as much. So one thread waits, with one futex_waitv, on the bells of all messengers that the
// loop polls, and rings the loop's doorbell. One thread serves all bells, because a stack is a MiB
// of locked memory and each untrusted process adds a bell.
//
// A bell is up while its member is asleep and nobody has rung it; otherwise the bell is down. While
// the loop is awake the thread waits in the kernel and costs nothing. While nobody rings, the loop
// may sleep and be woken by other things, and the thread does not run. After a ring the thread
// parks, and the loop's next sleep unparks it.
//
// No wake-up is lost. A loop raises its doorbell, then all bells, then counts the sleep, then looks
// at its sources once more. The thread remembers the count, waits until a bell is down, rings the
// doorbell, and waits until the count differs from the remembered one. Suppose that a bell is rung
// in sleep N. Either the thread already waits on the bells, or it looks at them after it has seen
// the count N. In both cases it finds that bell down.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <linux/futex.h>

#include "pinned_pool/join/membership.h"
#include "platform/cache_line.h"
#include "platform/thread_stack.h"
#include "platform/units.h"
#include "transport/loop/doorbell.h"
#include "transport/shm/queue/futex_bell.h"

namespace bedplate {

class BellWatch {
 public:
  static constexpr uint32_t kBellCountMax = FUTEX_WAITV_MAX - 1;  // one is for stop()
  static constexpr uint64_t kOwnerCheckNs = 50 * kNsPerMs;

  BellWatch() noexcept = default;
  BellWatch(const BellWatch&) = delete;
  BellWatch& operator=(const BellWatch&) = delete;
  ~BellWatch() { stop(); }

  // Starts the thread: from now on a ring of one of `bells` rings `doorbell`, which outlasts
  // stop(). A process that joined passes `members`: then the death of their owner rings `doorbell`
  // once, too. The thread notices the death only while all bells are up, and at most kOwnerCheckNs
  // late. Requires: at most kBellCountMax bells; called once, before the shards run. Allocates.
  // Errors (kSystem): no thread, or a kernel without futex_waitv (Linux 5.16).
  Result<void> start(const std::vector<FutexBell>& bells, Doorbell& doorbell,
                     const MembersTable* members = nullptr);

  // The loop calls this after it has raised all bells, and then looks at its sources once more.
  // Cost: one locked addition; after a ring a system call.
  void announce_sleep() noexcept {
    sleep_count_.fetch_add(1, std::memory_order_seq_cst);  // pairs with park()
    if (is_parked_.load(std::memory_order_seq_cst)) unpark();
  }

  // Stops the thread, and waits for its end. Does nothing if no thread runs. Threads: not the
  // loop's.
  void stop() noexcept;

 private:
  void run() noexcept;
  // Waits for a bell, a stop, or the owner's death. Returns whether the thread should ring.
  bool wait() noexcept;
  // Returns whether all bells are up, and sets waits_ to their words.
  bool find_sleeps() noexcept;
  void park(uint32_t seen_count) noexcept;
  void unpark() noexcept;

  std::vector<FutexBell> bells_;
  std::vector<futex_waitv> waits_;  // the bells, and is_stopping_
  Doorbell* doorbell_ = nullptr;
  const MembersTable* members_ = nullptr;  // nullptr: no death to watch for, or it was reported
  StackedThread thread_;
  alignas(kCacheLineBytes) std::atomic<uint32_t> sleep_count_{0};
  std::atomic<bool> is_parked_{false};
  std::atomic<uint32_t> is_stopping_{0};
};

}  // namespace bedplate
