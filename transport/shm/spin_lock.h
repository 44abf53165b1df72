// A lock for a few instructions between the threads of one process. Who does not need it does not
// pay for it: SpinGuard takes it only if told so.
#pragma once

#include <atomic>

#include <sched.h>

#include "platform/clock.h"

namespace bedplate {

class SpinLock {
 public:
  void lock() noexcept {
    while (is_locked_.exchange(true, std::memory_order_acquire)) {
      // The holder may have lost its core to this very thread.
      for (int i = 0; is_locked_.load(std::memory_order_relaxed); ++i) {
        i < kSpinsBeforeYield ? cpu_relax() : static_cast<void>(sched_yield());
      }
    }
  }
  bool try_lock() noexcept { return !is_locked_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { is_locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpinsBeforeYield = 100;

  std::atomic<bool> is_locked_{false};
};

class SpinGuard {
 public:
  SpinGuard(SpinLock& lock, bool is_wanted) noexcept : lock_(is_wanted ? &lock : nullptr) {
    if (lock_ != nullptr) lock_->lock();
  }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;
  ~SpinGuard() {
    if (lock_ != nullptr) lock_->unlock();
  }

 private:
  SpinLock* lock_;
};

}  // namespace bedplate
