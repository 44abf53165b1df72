// The receiving member, which runs on its own thread, awake or asleep, and the senders other than
// the stepped one. All are members in the owner's process.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "tests/strain/step_control.h"
#include "tests/strain/strained_group.h"

namespace bedplate::strain {

inline constexpr uint32_t kReceiver = 0;
inline constexpr uint32_t kStepOwnMax = 3;  // the owner's members: the receiver and its senders

class StepReceiver {
 public:
  explicit StepReceiver(const StrainedGroup& group);
  ~StepReceiver();

  void set_sleepy(bool is_sleepy) noexcept;
  // Whether the receiver's thread sleeps in the kernel.
  bool is_asleep() const noexcept;
  // Asks the thread to expose its memory to `member`.
  RemoteMemory expose_to(uint32_t member) noexcept;
  void withdraw() noexcept { request(Request::kWithdraw); }
  // Waits until the receiver has polled everything sent before this call.
  void let_look() noexcept {
    for (int i = 0; i < 2; ++i) request(Request::kLook);
  }

  // Stops the receiver's polling until let_go(). Messages sent in between stay in the queue.
  void hold() noexcept { request(Request::kHold); }
  void let_go() noexcept { is_held_.store(false, std::memory_order_release); }

  // The number of messages received from one of the owner's members.
  uint64_t received(uint32_t member) const noexcept {
    return received_[member].load(std::memory_order_acquire);
  }
  // The last attempt received from the stepped sender; 0: none yet.
  uint64_t last_attempt() const noexcept { return last_attempt_.load(std::memory_order_acquire); }
  // Resets last_attempt() for a new sender.
  void expect_new_sender() noexcept { last_attempt_.store(0, std::memory_order_release); }
  uint64_t word(uint32_t index) const noexcept {
    return __atomic_load_n(&words_[index], __ATOMIC_ACQUIRE);
  }
  uint64_t abandoned() const noexcept { return counters_.abandoned.read(); }
  // The first fault of the messages received since the last call; "": none.
  const char* take_fault() noexcept;

 private:
  // kNothing: the last request is done.
  enum class Request : uint32_t { kNothing, kExpose, kWithdraw, kLook, kHold };

  void run() noexcept;
  void request(Request what) noexcept;
  void receive(const Message& message) noexcept;
  void serve() noexcept;
  void ring() noexcept { bell_.wake_anyway(); }
  void note_fault(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

  const MembersTable& members_;
  FutexBell bell_;
  ShmCounters counters_;
  ShmProvider shm_;
  Messenger messenger_;
  std::atomic<bool> is_sleepy_{false};
  std::atomic<bool> is_held_{false};
  std::atomic<bool> is_over_{false};
  std::atomic<int> thread_id_{0};
  std::array<std::atomic<uint64_t>, kStepOwnMax> received_ = {};
  std::atomic<uint64_t> last_attempt_{0};
  std::atomic<Request> request_{Request::kNothing};
  uint32_t requested_for_ = 0;
  RemoteMemory exposed_;
  Endpoint* exposed_by_ = nullptr;
  std::atomic<uint32_t> fault_is_new_{0};
  char fault_[256] = {};
  char taken_fault_[256] = {};
  alignas(64) std::array<uint64_t, 64> words_ = {};
  std::thread thread_;
};

// Members of the owner that send to the receiver. Threads: the stepping thread.
class StepSenders {
 public:
  StepSenders(const StrainedGroup& group, uint32_t count);

  uint32_t count() const noexcept { return count_; }
  // Sends `messages` from each member. Returns whether all were accepted.
  bool send(uint32_t messages, uint64_t within_ns);
  // Sends until the queue is full, at most `messages` from each member.
  void fill_queue(uint32_t messages);
  // Whether all accepted messages have arrived.
  bool have_arrived(const StepReceiver& receiver) const noexcept;
  void poll() noexcept;
  // Polls until `condition` holds. Returns the nanoseconds taken, or UINT64_MAX if `condition` did
  // not hold within `within_ns`.
  template <typename Condition>
  uint64_t wait_until(Condition&& condition, uint64_t within_ns) noexcept;

 private:
  struct Sender {
    ShmProvider shm;
    Messenger messenger;
    Endpoint* endpoint = nullptr;
    uint64_t sent = 0;
  };
  SendStatus send_one(uint32_t index);

  const MembersTable& members_;
  uint32_t count_ = 0;
  std::array<std::unique_ptr<Sender>, kStepOwnMax> senders_;
};

template <typename Condition>
uint64_t StepSenders::wait_until(Condition&& condition, uint64_t within_ns) noexcept {
  const uint64_t begin = monotonic_ns();
  while (!condition()) {
    if (monotonic_ns() - begin > within_ns) return UINT64_MAX;
    poll();
    sched_yield();
  }
  return monotonic_ns() - begin;
}

}  // namespace bedplate::strain
