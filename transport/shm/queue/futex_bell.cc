#include "transport/shm/queue/futex_bell.h"

#include <cerrno>
#include <ctime>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {
namespace {

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

Result<void> join_bell_fence() noexcept {
  if (membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0) return {};
  return error_from_errno("registering for membarrier")
      .set_cure("allow membarrier(2) in the seccomp profile of this process");
}

void pass_bell_fence(BellFence fence) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (fence == BellFence::kBoth) return;
  // Fails only if join_bell_fence failed before.
  [[maybe_unused]] const long outcome = membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  BP_DCHECK(outcome == 0);
}

void FutexBell::raise() noexcept {
  // The number of the next sleep, in state kAsleep.
  sleep_ = ((sleep_ | kStateMask) + 1) | kAsleep;
  asleep_->store(sleep_, std::memory_order_relaxed);
}

bool FutexBell::sleep(uint64_t timeout_ns) const noexcept {
  const timespec timeout = {static_cast<time_t>(timeout_ns / kNsPerSecond),
                            static_cast<long>(timeout_ns % kNsPerSecond)};
  // EAGAIN: somebody has rung already. EINTR: an early return.
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(asleep_), FUTEX_WAIT, sleep_,
                 timeout_ns == UINT64_MAX ? nullptr : &timeout, nullptr, 0) == 0 ||
         errno != ETIMEDOUT;
}

void FutexBell::wake() noexcept {
  uint32_t word = asleep_->load(std::memory_order_relaxed);
  while (state_of(word) == kAsleep &&
         !asleep_->compare_exchange_weak(word, (word & ~kStateMask) | kBeingWoken,
                                         std::memory_order_relaxed)) {
  }
  const uint32_t sleep = word & ~kStateMask;
  if (state_of(word) == kAwake) return;
  // Another sender has begun to wake it, and may have been stopped before its futex(2).
  if (state_of(word) != kAsleep && sleep == __atomic_load_n(&woken_, __ATOMIC_RELAXED)) return;
  __atomic_store_n(&woken_, sleep, __ATOMIC_RELAXED);
  futex_wake();
}

void FutexBell::wake_anyway() const noexcept {
  asleep_->store(kAwake, std::memory_order_seq_cst);
  futex_wake();
}

void FutexBell::futex_wake() const noexcept {
  if (doorbell_ != nullptr) return doorbell_->ring();
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(asleep_), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace bedplate
