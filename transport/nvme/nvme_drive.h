// An NVMe drive on a shard: polled while there is work, and woken by its interrupt when there is
// none.
//
// Before each sleep of its loop with commands under way the interrupt is let through, and masked
// when the loop is awake. A timer looks after the controller (NvmeController::look). A drive that
// the kernel wants back, because it is to be unplugged, is let go of: all that is asked of it from
// then on answers EIO, and the service goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "transport/event_loop.h"
#include "transport/nvme/nvme_device.h"
#include "transport/stream_sockets.h"

namespace bedplate {

// Waits, and has `controller` go on, until it is ready. Errors: what is wrong with it, of the drive
// at `address`. For boot.
Result<void> wait_until_ready(NvmeController& controller, const std::string& address);

// What is planned on its shard for each drive.
inline constexpr uint32_t kNvmeTimerCount = 1;
inline constexpr uint32_t kNvmeWatchCount = 2;
inline constexpr uint32_t kNvmeDescriptorCount = 3;

class NvmeDrive final : public PollSource {
 public:
  static constexpr uint32_t kBudget = 64;

  // Starts it. Requires: `device` was opened in a container that has the pool; `memory` as
  // NvmeController::create. `counters` outlive this. Before the seal. Errors: NvmeDevice::open's;
  // what is wrong with the drive.
  Result<void> create(Fd device, const std::string& address, std::span<std::byte> memory,
                      const NvmeOptions& options, NvmeCounters& counters);
  // Begins to be looked after. The caller has added it to the loop of `sockets`, which has room for
  // what is said above. Threads, from here on but for what says otherwise: the loop's.
  void start(StreamSockets& sockets) noexcept;

  const NvmeNamespace& space(size_t index) const noexcept { return controller_.space(index); }
  // Requires: the range is the namespace's.
  void begin(NvmeOperation& operation) noexcept {
    controller_.io().begin(operation, loop_->now_ns());
  }

  uint32_t poll(uint32_t budget) noexcept override;
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;

  // Closes what the kernel has asked for, now and then. Threads: the control thread.
  void tick() noexcept;
  // Has it finish, once nothing is asked of it any more. Threads: any.
  void request_shut_down() noexcept;
  bool is_shut_down() const noexcept { return is_shut_down_.load(std::memory_order_acquire); }

 private:
  void look() noexcept;
  static void interrupted(void* self, uint32_t events) noexcept;
  static void asked_for(void* self, uint32_t events) noexcept;
  static void shut_down(void* self) noexcept;

  NvmeDevice device_;
  NvmeController controller_;
  NvmeCounters* counters_ = nullptr;
  EventLoop* loop_ = nullptr;
  StreamSockets* sockets_ = nullptr;
  Timer timer_;
  Watch interrupt_watch_;
  Watch request_watch_;
  LoopCall shut_down_call_ = {.function = &NvmeDrive::shut_down, .context = this};
  bool has_interrupts_ = false;
  std::atomic<bool> must_close_{false};
  std::atomic<bool> is_shut_down_{false};
};

}  // namespace bedplate
