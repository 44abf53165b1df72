// A ticket lock between the threads of one process, for short times. A waiting thread spins, then
// yields its core.
//
// It serves threads in the order in which they came. A shard that polls without end takes the lock
// again as soon as it has released it. If the fastest thread got the lock, the others would never
// get it.
#pragma once

#include <atomic>
#include <cstdint>

#include <sched.h>

#include "platform/clock.h"

namespace bedplate {

// std::lock_guard holds it. Not recursive.
class TurnLock {
 public:
  void lock() noexcept {
    const uint32_t turn = next_turn_.fetch_add(1, std::memory_order_relaxed);
    // Acquire: pairs with the release by the previous holder.
    for (int i = 0; turn_.load(std::memory_order_acquire) != turn; ++i) {
      // The holder may have lost its core to this very thread.
      i < kSpinsBeforeYield ? cpu_relax() : static_cast<void>(sched_yield());
    }
  }
  // Requires: the caller holds it.
  void unlock() noexcept {
    turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // How many threads wait for it. Requires: the caller holds it, or nobody uses it.
  uint32_t waiting_count() const noexcept {
    const uint32_t taken = next_turn_.load(std::memory_order_relaxed);
    const uint32_t turn = turn_.load(std::memory_order_relaxed);
    return taken == turn ? 0 : taken - turn - 1;
  }

 private:
  static constexpr int kSpinsBeforeYield = 100;

  std::atomic<uint32_t> next_turn_{0};
  std::atomic<uint32_t> turn_{0};  // the ticket that holds the lock now
};

}  // namespace bedplate
