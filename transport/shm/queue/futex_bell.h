// The doorbell of a member wakes the member in whichever process it sleeps. While the member is
// awake, the bell costs senders no system call and no fence.
//
// The protocol is Dekker's, with both fences on the sleeper's side. The sleeper raises `asleep`,
// makes every core that runs a member pass a fence (membarrier), then looks at its queues once
// more. A sender publishes, then loads `asleep`, from a line that it has in its cache. If
// membarrier is not allowed, each side has its own fence (BellFence::kBoth), and the group's header
// says so to all members.
//
// The word's low bits tell whether the member is awake, asleep, or being woken; the bits above them
// number its sleeps. A sender that finds the member asleep sets the word to "being woken", and
// wakes the member. A sender that finds the member being woken wakes it as well, once for each
// sleep: the first sender may be stopped between its two steps, for any time.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/assert.h"
#include "platform/result.h"
#include "transport/loop/doorbell.h"

namespace bedplate {

enum class BellFence : uint32_t {
  kSleeper,  // membarrier by the sleeper
  kBoth,     // a fence by each sender, too
};

// Makes the others' membarrier reach this process. Called before the process sends; further calls
// do nothing. Errors (kSystem): the kernel does not allow membarrier(2), so the group needs
// BellFence::kBoth.
Result<void> join_bell_fence() noexcept;

// Called after this thread's last raise() and before its last look at its queues. For each message
// then, either that look finds it, or its sender rings. Cost: with kSleeper a membarrier, which
// interrupts every core that runs a member.
void pass_bell_fence(BellFence fence) noexcept;

// Threads: the member calls announce_sleep(), raise(), sleep() and announce_awake(), all on one
// object; any thread calls ring(). The member and each sender have objects of their own for the
// same word.
class FutexBell {
 public:
  enum State : uint32_t { kAwake = 0, kAsleep = 1, kBeingWoken = 2 };
  static constexpr uint32_t kStateMask = 3;
  static constexpr State state_of(uint32_t word) noexcept {
    return static_cast<State>(word & kStateMask);
  }

  FutexBell() noexcept = default;
  // `asleep` is a word in shared memory, 0 at first.
  FutexBell(std::atomic<uint32_t>& asleep, BellFence fence) noexcept
      : asleep_(&asleep), fence_(fence) {}

  // Sets how to wake a member that is an event loop of this process, which sleeps in its sockets:
  // by its `doorbell`, not by the futex. The loop announces the doorbell asleep before it raises
  // the bell.
  void wake_by(Doorbell& doorbell) noexcept { doorbell_ = &doorbell; }

  // Sender: makes the member see everything that was published before this call. Cost: a load
  // while the member is awake, with kBoth also a fence; else at most one futex(2), or ring of the
  // doorbell, for each of the member's sleeps.
  void ring() noexcept {
    if (BP_UNLIKELY(fence_ == BellFence::kBoth)) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_signal_fence(std::memory_order_seq_cst);  // membarrier does the rest
    }
    if (BP_UNLIKELY(asleep_->load(std::memory_order_relaxed) != kAwake)) wake();
  }

  // Member: about to sleep. It must look at its queues once more after this call.
  void announce_sleep() noexcept {
    raise();
    pass_bell_fence(fence_);
  }
  // The first half of announce_sleep(), for a sleep on several bells: the caller raises all bells,
  // then passes one fence for all (pass_bell_fence).
  void raise() noexcept;
  // Member: sleeps until somebody rings, or `timeout_ns` have passed (UINT64_MAX: no limit).
  // Returns false if the time has passed; may return early, with true. Requires: announce_sleep(),
  // or raise() and a fence.
  bool sleep(uint64_t timeout_ns) const noexcept;
  // Member: awake again.
  void announce_awake() const noexcept { asleep_->store(kAwake, std::memory_order_relaxed); }

  // Owner: wakes the member whatever the word says. A sender that is killed before its futex(2)
  // leaves the member asleep until the next message. So the control thread, which learns of deaths,
  // calls this. Cost: one futex(2).
  void wake_anyway() const noexcept;

  // The word; its state is kAsleep while the member sleeps and nobody has rung. For a thread that
  // waits on several bells at once.
  const std::atomic<uint32_t>& word() const noexcept { return *asleep_; }

 private:
  void wake() noexcept;
  void futex_wake() const noexcept;

  std::atomic<uint32_t>* asleep_ = nullptr;
  Doorbell* doorbell_ = nullptr;
  uint32_t sleep_ = 0;  // in the member's bell: the word of its last sleep
  uint32_t woken_ = 0;  // in a sender's, atomic: the last sleep that it has ended
  BellFence fence_ = BellFence::kSleeper;
};

}  // namespace bedplate
