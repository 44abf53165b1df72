// Tested by tests/guest/nvme_test.py.
#include "transport/nvme/nvme_drive.h"

#include <poll.h>
#include <unistd.h>

#include "platform/clock.h"

namespace bedplate {
namespace {

using State = NvmeController::State;

constexpr useconds_t kBootStepUs = 100;

void take_events(int fd) noexcept {
  uint64_t count = 0;
  (void)!read(fd, &count, sizeof count);
}

}  // namespace

// Each state has its own time limit.
Result<void> wait_until_ready(NvmeController& controller, const std::string& address) {
  while (controller.state() != State::kReady) {
    if (controller.state() == State::kFailed) {
      return error_of(controller.problem(), controller.problem_detail(), address);
    }
    usleep(kBootStepUs);
    controller.look(monotonic_ns());
  }
  return {};
}

Result<void> NvmeDrive::create(Fd device, const std::string& address, std::span<std::byte> memory,
                               const NvmeOptions& options, NvmeCounters& counters) {
  counters_ = &counters;
  BP_TRY(device_.open(std::move(device), address));
  controller_.create(device_, memory, options, counters, monotonic_ns());
  auto ready = wait_until_ready(controller_, address);
  if (!ready.ok()) device_.close();
  return ready;
}

void NvmeDrive::start(StreamSockets& sockets) noexcept {
  sockets_ = &sockets;
  loop_ = &sockets.loop();
  timer_.expired = [](void* self) noexcept { static_cast<NvmeDrive*>(self)->look(); };
  timer_.context = this;
  interrupt_watch_.fd = device_.interrupt_fd();
  interrupt_watch_.ready = &NvmeDrive::interrupted;
  request_watch_.fd = device_.request_fd();
  request_watch_.ready = &NvmeDrive::asked_for;
  for (Watch* watch : {&interrupt_watch_, &request_watch_}) {
    watch->events = POLLIN;
    watch->context = this;
    const int refused = sockets.start_watching(*watch);
    BP_ASSERT(refused == 0);  // there is room by the plan
  }
  look();
}

// ---- On its shard -------------------------------------------------------------------------------

void NvmeDrive::look() noexcept {
  const uint64_t next_ns = controller_.look(loop_->now_ns());
  if (controller_.state() == State::kClosed) {
    is_shut_down_.store(true, std::memory_order_release);
    return;
  }
  loop_->timers().arm(timer_, next_ns);
}

uint32_t NvmeDrive::poll(uint32_t budget) noexcept {
  return controller_.poll(budget, loop_->now_ns());
}

void NvmeDrive::announce_sleep() noexcept {
  if (!controller_.has_outstanding()) return;
  has_interrupts_ = true;
  device_.allow_interrupts(true);
}

void NvmeDrive::announce_awake() noexcept {
  if (!has_interrupts_) return;
  has_interrupts_ = false;
  device_.allow_interrupts(false);
}

// What has completed, poll() finds.
void NvmeDrive::interrupted(void* self, uint32_t) noexcept {
  auto& drive = *static_cast<NvmeDrive*>(self);
  take_events(drive.interrupt_watch_.fd);
  drive.counters_->interrupts.add(1);
}

void NvmeDrive::asked_for(void* self, uint32_t) noexcept {
  auto& drive = *static_cast<NvmeDrive*>(self);
  take_events(drive.request_watch_.fd);
  drive.sockets_->stop_watching(drive.interrupt_watch_);
  drive.sockets_->stop_watching(drive.request_watch_);
  drive.announce_awake();
  drive.loop_->timers().cancel(drive.timer_);
  if (drive.controller_.state() != State::kClosed) {
    drive.controller_.give_up(NvmeProblem::kTakenBack);
  }
  drive.is_shut_down_.store(true, std::memory_order_release);
  drive.must_close_.store(true, std::memory_order_release);
}

void NvmeDrive::shut_down(void* self) noexcept {
  auto& drive = *static_cast<NvmeDrive*>(self);
  drive.controller_.shut_down(drive.loop_->now_ns());
  drive.look();
}

// ---- From the control thread --------------------------------------------------------------------

// It takes long enough for a shard to notice: the kernel resets the device.
void NvmeDrive::tick() noexcept {
  if (must_close_.exchange(false, std::memory_order_acquire)) device_.close();
}

void NvmeDrive::request_shut_down() noexcept {
  if (!is_shut_down()) loop_->submit(shut_down_call_);
}

}  // namespace bedplate
