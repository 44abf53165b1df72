// The doorbell of a member. It wakes the member in whichever process it sleeps; while the member is
// awake, it costs senders no system call, no fence and no line of its own.
//
// The protocol is Dekker's, with both fences on the sleeper's side. The sleeper raises `asleep`,
// makes every core that runs a member pass a fence (membarrier), then looks at its queues once
// more; a sender publishes, then loads `asleep`, from a line that it has in its cache. If
// membarrier is not allowed, each side has its own fence (BellFence::kBoth), and the group's header
// tells all members.
//
// The word's low bits tell whether the member is awake, asleep, or being woken; the bits above them
// number its sleeps. A sender that finds it asleep sets the word to "being woken", and wakes it. A
// sender that finds it being woken wakes it as well, once for each sleep: the first sender may be
// stopped between the two steps, for any time.
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

// Makes the others' membarrier reach this process. Called once, before it sends. Errors (kSystem):
// the kernel does not allow membarrier(2); then BellFence::kBoth is needed.
Result<void> join_bell_fence() noexcept;

// Called after this thread's last raise() and before its last look: each bell's member then sees a
// published message, or is rung. Cost: with kSleeper a membarrier, which interrupts every core that
// runs a member.
void pass_bell_fence(BellFence fence) noexcept;

// Threads: raise(), sleep() and announce_awake() by the member; ring() by any. Each sending process
// has a bell of its own on the same word.
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

  // Tells that the member is an event loop of this process, which sleeps in its sockets: its own
  // `doorbell` wakes it instead of the futex. The doorbell is announced asleep before the bell is
  // raised.
  void wake_by(Doorbell& doorbell) noexcept { doorbell_ = &doorbell; }

  // Sender: makes the member see everything that was published before this call. Cost: a load,
  // while the member is awake; else at most one futex(2) for each of its sleeps.
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
  // The first half, for a sleep on several bells: once all are raised, one fence serves all.
  void raise() noexcept;
  // Member: sleeps until somebody rings, or `timeout_ns` have passed (UINT64_MAX: no limit).
  // Returns false if the time has passed; may return early, with true. Requires: announce_sleep().
  bool sleep(uint64_t timeout_ns) const noexcept;
  // Member: awake again.
  void announce_awake() const noexcept { asleep_->store(kAwake, std::memory_order_relaxed); }

  // Owner: wakes the member even if a sender seems to have done so. A sender that is killed before
  // its futex(2) leaves the member asleep until the next message; the control thread, which learns
  // of deaths, calls this. Cost: one futex(2).
  void wake_anyway() const noexcept;

  // The word; its state is kAsleep while the member sleeps and nobody has rung. For a thread that
  // waits on several bells at once.
  const std::atomic<uint32_t>& word() const noexcept { return *asleep_; }

 private:
  void wake() noexcept;
  void futex_wake() const noexcept;

  std::atomic<uint32_t>* asleep_ = nullptr;
  Doorbell* doorbell_ = nullptr;
  uint32_t sleep_ = 0;  // the member's: the word of its last sleep
  uint32_t woken_ = 0;  // a sender's, atomic: the sleep from which it last woke the member
  BellFence fence_ = BellFence::kSleeper;
};

}  // namespace bedplate
