// A queue pair of an NVMe drive on its shard. The shard's loop polls it while the loop is awake;
// the pair's own interrupt wakes the loop from a sleep.
//
// If the loop sleeps with commands under way, the interrupt is unmasked before the sleep, and
// masked again when the loop is awake. The drive's control passes its wishes to the pair by a
// LoopCall. Threads: the loop's, unless stated otherwise.
#pragma once

#include "transport/loop/event_loop.h"
#include "transport/nvme/nvme_device.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

class NvmeDriveQueue final : public PollSource {
 public:
  explicit NvmeDriveQueue(NvmeQueueCounters& counters) noexcept : counters_(counters) {}
  // `pair` and its interrupt have the number `index`. This submits `look_call` to `control` when
  // the pair has a late command. The arguments outlive this. Before the loops run. Threads: the
  // main thread.
  void attach(NvmeDevice& device, NvmeQueuePair& pair, uint32_t index, EventLoop& loop,
              EventLoop& control, LoopCall& look_call) noexcept;
  // Requires: the sockets are of its loop, which has space for a timer and a watch.
  void start(StreamSockets& sockets) noexcept;

  // Begins the operation (NvmeIo::begin); the next poll() submits its commands. Requires: the range
  // is within the namespace.
  void begin(NvmeOperation& operation) noexcept { pair_->io().begin(operation, loop_->now_ns()); }

  uint32_t poll(uint32_t budget) noexcept override;
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;

 private:
  void look() noexcept;
  static void follow(void* self) noexcept;
  static void interrupted(void* self, uint32_t events) noexcept;

  NvmeDevice* device_ = nullptr;
  NvmeQueuePair* pair_ = nullptr;
  NvmeQueueCounters& counters_;
  EventLoop* loop_ = nullptr;
  EventLoop* control_ = nullptr;
  LoopCall* look_call_ = nullptr;
  uint32_t index_ = 0;
  bool has_interrupt_ = false;
  Timer timer_;
  Watch watch_;
  LoopCall follow_call_ = {.function = &NvmeDriveQueue::follow, .context = this};
};

}  // namespace bedplate
