// The doorbell: wakes a shard that sleeps, and costs its producers no system call while it is
// awake.
//
// The protocol is Dekker's: the sleeper raises `asleep`, then looks at its queues once more; the
// producer publishes, then looks at `asleep`. With a full fence between the two steps on each side
// at least one of them sees the other, so no wake-up is lost. Models: tests/model/.
#pragma once

#include <atomic>

#include "platform/cache_line.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Threads: the shard's, but for ring(). It outlives everything that rings it.
class Doorbell {
 public:
  // Requires: called once, before all else. Errors (kSystem): there is no descriptor.
  Result<void> create() noexcept;

  // Producer: the shard will see all that was published before this call. Threads: any.
  // Cost: a fence and a load; one write(2) if the shard sleeps.
  void ring() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in announce_sleep
    if (is_asleep_.load(std::memory_order_relaxed)) wake();
  }

  // Shard: about to sleep. It must look at its queues once more after this call.
  void announce_sleep() noexcept {
    is_asleep_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in ring
  }
  // Shard: awake again.
  void announce_awake() noexcept { is_asleep_.store(false, std::memory_order_relaxed); }

  // Shard: the eventfd became readable; makes it quiet again.
  void acknowledge() noexcept;

  // An eventfd that is readable from a wake until acknowledge(); this object's. The shard waits for
  // it in epoll or io_uring, and so wakes.
  int event_fd() const noexcept { return event_.number(); }

 private:
  void wake() noexcept;

  alignas(kCacheLineBytes) std::atomic<bool> is_asleep_{false};
  Fd event_;
};

}  // namespace bedplate
