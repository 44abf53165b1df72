#include "transport/nvme/nvme_drive_queue.h"

#include <poll.h>
#include <unistd.h>

namespace bedplate {

void NvmeDriveQueue::attach(NvmeDevice& device, NvmeQueuePair& pair, uint32_t index,
                            EventLoop& loop, EventLoop& control, LoopCall& look_call) noexcept {
  BP_ASSERT(loop_ == nullptr && index < device.interrupt_count);
  device_ = &device;
  pair_ = &pair;
  index_ = index;
  loop_ = &loop;
  control_ = &control;
  look_call_ = &look_call;
  const auto tell = [](void* self) noexcept {
    auto& queue = *static_cast<NvmeDriveQueue*>(self);
    queue.loop_->submit(queue.follow_call_);
  };
  const auto ask = [](void* self) noexcept {
    auto& queue = *static_cast<NvmeDriveQueue*>(self);
    queue.control_->submit(*queue.look_call_);
  };
  pair.set_calls({.follow = tell,
                  .follow_context = this,
                  .look = ask,
                  .look_context = this,
                  .control = &control,
                  .shard = &loop});
}

void NvmeDriveQueue::start(StreamSockets& sockets) noexcept {
  BP_DCHECK(loop_->is_own_thread() && &sockets.loop() == loop_);
  timer_.expired = [](void* self) noexcept { static_cast<NvmeDriveQueue*>(self)->look(); };
  timer_.context = this;
  watch_.fd = device_->interrupt_fd(index_);
  watch_.events = POLLIN;
  watch_.ready = &NvmeDriveQueue::interrupted;
  watch_.context = this;
  const int refused = sockets.start_watching(watch_);
  BP_ASSERT(refused == 0);  // the plan counts the watch
  look();
}

void NvmeDriveQueue::look() noexcept { loop_->timers().arm(timer_, pair_->look(loop_->now_ns())); }

// Masks the interrupt first: after kEnded the device may go, with the registers that mask it.
void NvmeDriveQueue::follow(void* self) noexcept {
  auto& queue = *static_cast<NvmeDriveQueue*>(self);
  BP_DCHECK(queue.loop_->is_own_thread());
  queue.announce_awake();
  queue.pair_->follow();
}

uint32_t NvmeDriveQueue::poll(uint32_t budget) noexcept {
  return pair_->poll(budget, loop_->now_ns());
}

void NvmeDriveQueue::announce_sleep() noexcept {
  BP_DCHECK(loop_->is_own_thread() && !has_interrupt_);
  if (!pair_->has_outstanding()) return;
  has_interrupt_ = true;
  device_->allow_interrupt(index_, true);
}

void NvmeDriveQueue::announce_awake() noexcept {
  BP_DCHECK(loop_->is_own_thread());
  if (!has_interrupt_) return;
  has_interrupt_ = false;
  device_->allow_interrupt(index_, false);
}

// Only counts: poll() takes the completions.
void NvmeDriveQueue::interrupted(void* self, uint32_t) noexcept {
  auto& queue = *static_cast<NvmeDriveQueue*>(self);
  BP_DCHECK(queue.loop_->is_own_thread());
  uint64_t count = 0;
  (void)!read(queue.watch_.fd, &count, sizeof count);
  queue.counters_.interrupts.add(1);
}

}  // namespace bedplate
