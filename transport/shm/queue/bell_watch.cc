#include "transport/shm/queue/bell_watch.h"

#include <cerrno>
#include <ctime>

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/clock.h"

namespace bedplate {
namespace {

// `end`: on CLOCK_MONOTONIC; nullptr: none.
long wait_any(const futex_waitv* waits, size_t count, const timespec* end) noexcept {
  return syscall(SYS_futex_waitv, waits, count, 0, end, CLOCK_MONOTONIC);
}

void wake(std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

futex_waitv wait_while(const std::atomic<uint32_t>& word, uint32_t value) noexcept {
  futex_waitv wait = {};
  wait.val = value;
  wait.uaddr = reinterpret_cast<uintptr_t>(&word);
  wait.flags = FUTEX_32;  // shared: other processes ring
  return wait;
}

}  // namespace

Result<void> BellWatch::start(const std::vector<FutexBell>& bells, Doorbell& doorbell,
                              const MembersTable* members) {
  BP_ASSERT(doorbell_ == nullptr && bells.size() <= kBellCountMax);
  // Probes for the call: a kernel that has it refuses an empty list with EINVAL.
  if (wait_any(nullptr, 0, nullptr); errno != EINVAL) {
    return error_from_errno("waiting on the doorbells of groups (futex_waitv)")
        .set_cure("use Linux 5.16 or newer; in a container, a seccomp profile that allows it");
  }
  bells_ = bells;
  members_ = members;
  for (const FutexBell& bell : bells_) waits_.push_back(wait_while(bell.word(), 0));
  waits_.push_back(wait_while(is_stopping_, 0));
  doorbell_ = &doorbell;
  auto started = thread_.start(
      "bells", [](void* self) noexcept { static_cast<BellWatch*>(self)->run(); }, this);
  if (!started.ok()) doorbell_ = nullptr;
  return started;
}

void BellWatch::stop() noexcept {
  if (doorbell_ == nullptr) return;
  is_stopping_.store(1, std::memory_order_seq_cst);
  wake(is_stopping_);
  announce_sleep();  // the thread may be parked
  thread_.join();
  doorbell_ = nullptr;
}

void BellWatch::run() noexcept {
  while (is_stopping_.load(std::memory_order_seq_cst) == 0) {
    const uint32_t seen_count = sleep_count_.load(std::memory_order_seq_cst);
    // Returns when a bell is rung, and at once if one was rung already, or all are awake. Other
    // members may write anything to their group's bells; that ends in a ring, too.
    if (!wait()) continue;
    doorbell_->ring();  // no effect on a loop that is awake
    park(seen_count);
  }
}

bool BellWatch::wait() noexcept {
  if (!find_sleeps()) return true;
  // Wakes for it now and then: a change of the owner's word does not wake a wait on other words.
  const uint64_t end_ns = members_ == nullptr ? 0 : monotonic_ns() + kOwnerCheckNs;
  const timespec end = {static_cast<time_t>(end_ns / kNsPerSecond),
                        static_cast<long>(end_ns % kNsPerSecond)};
  const timespec* const until = members_ == nullptr ? nullptr : &end;
  if (wait_any(waits_.data(), waits_.size(), until) >= 0) return true;
  if (errno != ETIMEDOUT) return errno != EINTR;
  if (!members_->is_owner_gone()) return false;
  members_ = nullptr;
  return true;
}

bool BellWatch::find_sleeps() noexcept {
  for (size_t i = 0; i < bells_.size(); ++i) {
    const uint32_t word = bells_[i].word().load(std::memory_order_seq_cst);
    if (FutexBell::state_of(word) != FutexBell::kAsleep) return false;
    waits_[i].val = word;
  }
  return true;
}

// Waits until the loop's sleep count differs from `seen_count`, or for the stop. Dekker's protocol
// again: either the loop sees that this thread is parked, or this thread sees the loop's new count.
void BellWatch::park(uint32_t seen_count) noexcept {
  is_parked_.store(true, std::memory_order_seq_cst);
  while (sleep_count_.load(std::memory_order_seq_cst) == seen_count &&
         is_stopping_.load(std::memory_order_seq_cst) == 0) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&sleep_count_), FUTEX_WAIT_PRIVATE, seen_count,
            nullptr, nullptr, 0);
  }
  is_parked_.store(false, std::memory_order_seq_cst);
}

void BellWatch::unpark() noexcept {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&sleep_count_), FUTEX_WAKE_PRIVATE, 1, nullptr,
          nullptr, 0);
}

}  // namespace bedplate
