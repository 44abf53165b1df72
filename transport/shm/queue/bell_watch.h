// Waits on futex bells for a shard that sleeps elsewhere.
//
// An event loop sleeps in its socket backend, which knows nothing of futexes; members of other
// processes can ring nothing else (an eventfd for each pair would have to be handed about, and to
// ring it costs as much). So one thread waits on the bells of all the messengers that the loop
// polls, with one futex_waitv, and rings the loop's doorbell. One thread and not one for each bell:
// a stack is a MiB of locked memory, and an untrusted process brings a bell of its own.
//
// While the loop is awake the thread waits in the kernel and costs nothing; the bells are not rung.
// While nobody rings, a loop may sleep and wake by other things as often as it likes: the thread is
// not disturbed. Only after a ring it has to be told that the loop sleeps once more.
//
// No wake-up is lost. A loop raises its doorbell, then all bells, then counts the sleep, then looks
// at its sources once more. The thread remembers the count, waits until a bell is down, rings the
// doorbell, and waits for another count than it remembers. So a bell that was rung in sleep N is
// seen: the thread looks at the bells after it has seen N, or is waiting on them since before.
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
  // stop(). With `members`, which is for a process that joined, so does the death of their owner,
  // once; it may be noticed late, within kOwnerCheckNs, and only while the bells are up.
  // Requires: at most kBellCountMax bells; called once. Before the shards run.
  // Errors (kSystem): no thread, or a kernel without futex_waitv (Linux 5.16).
  Result<void> start(const std::vector<FutexBell>& bells, Doorbell& doorbell,
                     const MembersTable* members = nullptr);

  // The loop: all bells are announced asleep; it will look at its sources once more.
  // Cost: one locked addition; after a ring a system call.
  void announce_sleep() noexcept {
    sleep_count_.fetch_add(1, std::memory_order_seq_cst);  // pairs with park()
    if (is_parked_.load(std::memory_order_seq_cst)) unpark();
  }

  // Ends the thread, and waits for its end. Nothing happens if none runs. Threads: not the loop's.
  void stop() noexcept;

 private:
  void run() noexcept;
  // Until a bell or a stop, or the owner's death. Returns whether there is anything to ring for.
  bool wait() noexcept;
  // Returns true if all bells are announced asleep; then the thread waits for them.
  bool find_sleeps() noexcept;
  void park(uint32_t seen_count) noexcept;
  void unpark() noexcept;

  std::vector<FutexBell> bells_;
  std::vector<futex_waitv> waits_;  // the bells, and is_stopping_
  Doorbell* doorbell_ = nullptr;
  const MembersTable* members_ = nullptr;  // nullptr: nobody's death, or it was told
  StackedThread thread_;
  alignas(kCacheLineBytes) std::atomic<uint32_t> sleep_count_{0};
  std::atomic<bool> is_parked_{false};
  std::atomic<uint32_t> is_stopping_{0};
};

}  // namespace bedplate
