// The doorbell of a member: wakes it in whichever process it sleeps, and costs who sends to it no
// system call, no fence and no line of its own while it is awake.
//
// The protocol is Dekker's, with its two fences both on the sleeper's side. The sleeper raises
// `asleep`, makes every core that runs a member pass a fence (membarrier), then looks at its queues
// once more; who sends publishes, then loads `asleep`, from a line that it has in its cache. Where
// membarrier is not allowed both sides have a fence of their own (BellFence::kBoth), and the
// group's header says so to all.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/assert.h"
#include "platform/result.h"

namespace bedplate {

enum class BellFence : uint32_t {
  kSleeper,  // membarrier by who goes to sleep
  kBoth,     // a fence by everybody who sends
};

// Makes this process one that the others' membarrier reaches. Once, before it sends.
// Errors: the kernel does not allow membarrier; then BellFence::kBoth must do.
Result<void> join_bell_fence() noexcept;

// After the last raise() of this thread and before its last look: of what is published, each bell's
// member then sees it, or is rung. Cost: with kSleeper a membarrier, which interrupts every core
// that runs a member.
void pass_bell_fence(BellFence fence) noexcept;

class FutexBell {
 public:
  FutexBell() noexcept = default;
  // `asleep` is a word in shared memory, 0 at first.
  FutexBell(std::atomic<uint32_t>& asleep, BellFence fence) noexcept
      : asleep_(&asleep), fence_(fence) {}

  // Sender: what was published before this call will be seen by the member. Threads: any.
  // Cost: a load, while the member is awake; else one futex(2) for all who ring.
  void ring() const noexcept {
    if (BP_UNLIKELY(fence_ == BellFence::kBoth)) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_signal_fence(std::memory_order_seq_cst);  // membarrier does the rest
    }
    if (BP_UNLIKELY(asleep_->load(std::memory_order_relaxed) != 0)) wake();
  }

  // Member: about to sleep. It must look at its queues once more after this call.
  void announce_sleep() const noexcept {
    raise();
    pass_bell_fence(fence_);
  }
  // The first half, for who sleeps on several bells: once all are raised, one fence does for all.
  void raise() const noexcept;
  // Member: sleeps until somebody rings, or `timeout_ns` passed (UINT64_MAX: no limit). It may
  // return early. Requires: announce_sleep().
  void sleep(uint64_t timeout_ns) const noexcept;
  // Member: awake again.
  void announce_awake() const noexcept { asleep_->store(0, std::memory_order_relaxed); }

  // Owner: wakes the member even where somebody seems to have done so. A sender that is killed
  // between putting `asleep` down and its futex(2) leaves it asleep for good: whoever hears of a
  // death calls this. Cost: one futex(2).
  void wake_anyway() const noexcept;

  // 1 while the member is asleep: for who waits on several bells at once.
  const std::atomic<uint32_t>& word() const noexcept { return *asleep_; }

 private:
  void wake() const noexcept;
  void futex_wake() const noexcept;

  std::atomic<uint32_t>* asleep_ = nullptr;
  BellFence fence_ = BellFence::kSleeper;
};

}  // namespace bedplate
