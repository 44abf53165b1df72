// An NVMe drive of an appliance: its control on one shard, and a queue pair on each shard with
// volumes on it.
//
// A timer of the control's shard drives the controller (NvmeController::look). The kernel asks for
// the drive before the drive is unplugged. From then on all operations answer EIO, and the service
// goes on. The drive is released once no shard uses its registers any more; then the device is
// closed.
//
// Invariants, checked by is_valid() around the work of the control's shard: 1. If the kernel has
// taken the drive back, the controller is closed, and the request is not watched any more. 2. A
// drive that is shut down stays released. 3. The device is closed only after it is released.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "transport/nvme/nvme_drive_queue.h"

namespace bedplate {

// Drives `controller` and waits until it is ready. Blocks, so it is for boot only. Errors: the
// problem of the drive at `address`.
Result<void> wait_until_ready(NvmeController& controller, const std::string& address);

// The resources to plan for each drive on the shard of its control, and for each of its queues on
// the queue's shard.
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
  static constexpr uint32_t kBudget = 64;  // of each queue, as a source of its loop

  // Starts the drive, and waits until it is ready. Requires: `device` was opened in a container
  // that has the pool; `memory` and `queues` as for NvmeController::create. The counters outlive
  // this. Before the seal. Errors: NvmeDevice::open's; the problem of the drive.
  Result<void> create(Fd device, const std::string& address, std::span<std::byte> memory,
                      std::span<const NvmeQueueMemory> queues, const NvmeOptions& options,
                      NvmeCounters& counters);
  // The number of queues. It may be less than planned: the drive decides how many it grants.
  uint32_t queue_count() const noexcept { return controller_.queue_count(); }
  // Gives the control to a loop, and each queue to one of queue_count() loops. The caller adds
  // queue(N) to loop N. Before the loops run.
  void attach(EventLoop& control, std::span<EventLoop* const> loops);
  // Exists from create() on. Threads: its own loop's.
  NvmeDriveQueue& queue(size_t index) noexcept {
    BP_DCHECK(index < queues_.size());
    return queues_[index];
  }
  // Starts the timer and the watches. Threads: the control's.
  void start(StreamSockets& sockets) noexcept;

  const NvmeNamespace& space(size_t index) const noexcept { return controller_.space(index); }

  // Closes the device if the kernel has asked for it, and the drive is released. Called now and
  // then. Threads: the main thread, which is no shard.
  void tick() noexcept;
  // Requests the shutdown. Call it after the last operation was begun: later ones answer EIO.
  // Threads: any.
  void request_shut_down() noexcept;
  // Whether the drive is released: after a shutdown, or because the kernel took it back. Threads:
  // any.
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
  EventLoop* loop_ = nullptr;  // the control's, as are the following members but the atomic ones
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
