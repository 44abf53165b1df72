// An NVMe drive of an appliance: its control on one shard, and a queue pair on each shard that has
// volumes on it.
//
// A timer of the control's shard looks after the controller (NvmeController::look). A drive that
// the kernel wants back, because it is to be unplugged, is let go of, once no shard uses it any
// more: all operations from then on answer EIO, and the service goes on.
//
// Invariants, which is_valid() looks at around what its shard does: 1. A drive that the kernel took
// back is closed, and is not watched for that request any more. 2. A drive that is shut down stays
// let go of. 3. The device is closed once it is let go of, and not before.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "transport/nvme/nvme_drive_queue.h"

namespace bedplate {

// Waits, and has `controller` go on, until it is ready. Errors: what is wrong with it, of the drive
// at `address`. For boot.
Result<void> wait_until_ready(NvmeController& controller, const std::string& address);

// The needs to plan for each drive on the shard of its control, and for each of its queues on
// theirs.
struct NvmeNeeds {
  uint32_t timers = 1;
  uint32_t watches = 1;
  uint32_t sources = 0;
  uint32_t descriptors = 1;
};
inline constexpr NvmeNeeds kNvmeControlNeeds = {.descriptors = 2};
inline constexpr NvmeNeeds kNvmeQueueNeeds = {.sources = 1};

class NvmeDrive {
 public:
  static constexpr uint32_t kBudget = 64;

  // Starts it. Requires: `device` was opened in a container that has the pool; `memory` and
  // `queues` as NvmeController::create. Counters outlive this. Before the seal. Errors:
  // NvmeDevice::open's; what is wrong with the drive.
  Result<void> create(Fd device, const std::string& address, std::span<std::byte> memory,
                      std::span<const NvmeQueuePlace> queues, const NvmeOptions& options,
                      NvmeCounters& counters);
  // How many of the queues it has: the drive may grant fewer.
  uint32_t queue_count() const noexcept { return controller_.queue_count(); }
  // Gives the control to a loop, and each of its queues to one of queue_count() loops. The caller
  // adds queue(N) to the N-th. Before the loops run.
  void attach(EventLoop& control, std::span<EventLoop* const> loops);
  // It is there from create() on, for its own loop.
  NvmeDriveQueue& queue(size_t index) noexcept {
    BP_DCHECK(index < queues_.size());
    return queues_[index];
  }
  // Begins to be looked after. Threads: the control's.
  void start(StreamSockets& sockets) noexcept;

  const NvmeNamespace& space(size_t index) const noexcept { return controller_.space(index); }

  // Called now and then: closes the device that the kernel has asked for. Threads: the control
  // thread.
  void tick() noexcept;
  // Makes it finish, once nothing is asked of it any more. Threads: any.
  void request_shut_down() noexcept;
  bool is_shut_down() const noexcept { return is_shut_down_.load(std::memory_order_acquire); }

  // Threads: the control's.
  bool is_valid() const noexcept;

 private:
  void look() noexcept;
  static void asked_for(void* self, uint32_t events) noexcept;
  static void shut_down(void* self) noexcept;

  NvmeDevice device_;
  NvmeController controller_;
  std::deque<NvmeDriveQueue> queues_;
  EventLoop* loop_ = nullptr;  // of the control, as is what follows
  StreamSockets* sockets_ = nullptr;
  Timer timer_;
  Watch request_watch_;
  LoopCall look_call_;
  LoopCall shut_down_call_ = {.function = &NvmeDrive::shut_down, .context = this};
  bool is_taken_back_ = false;
  std::atomic<bool> must_close_{false};
  std::atomic<bool> is_shut_down_{false};
};

}  // namespace bedplate
