// The doorbell wakes a shard that sleeps; while the shard is awake it costs producers no system
// call.
//
// The protocol is Dekker's: the sleeper sets is_asleep_, then looks at its queues once more; the
// producer publishes, then looks at is_asleep_. With a full fence between the two steps on each
// side, at least one side sees the other's store, so no wake-up is lost. Models: tests/model/.
#pragma once

#include <atomic>

#include "platform/cache_line.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Threads: the shard's, but for ring(). The doorbell outlives everything that rings it.
class Doorbell {
 public:
  // Requires: called once, before all else. Errors (kSystem): no descriptor is left.
  Result<void> create() noexcept;

  // Producer: makes the shard see all that the caller published before. Threads: any. Cost: a fence
  // and a load; one write(2) if the shard sleeps.
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

  // Shard: resets the eventfd. Does nothing if nobody has rung.
  void acknowledge() noexcept;

  // The eventfd, readable from a wake until acknowledge(); the doorbell owns it. The shard waits
  // for it in epoll or io_uring.
  int event_fd() const noexcept { return event_.number(); }

 private:
  void wake() noexcept;

  alignas(kCacheLineBytes) std::atomic<bool> is_asleep_{false};
  Fd event_;
};

}  // namespace bedplate
