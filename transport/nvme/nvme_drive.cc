#include "transport/nvme/nvme_drive.h"

#include <poll.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/progress.h"

namespace bedplate {
namespace {

using State = NvmeController::State;

constexpr useconds_t kBootStepUs = 100;

}  // namespace

// Waits without a limit of its own, as each state of the controller has one.
Result<void> wait_until_ready(NvmeController& controller, const std::string& address) {
  const std::string doing = "waiting for the NVMe drive " + address;
  Progress progress(doing.c_str(), {.wait_max_ns = controller.ready_max_ns()});
  while (controller.state() != State::kReady) {
    if (controller.state() == State::kFailed) {
      return error_of(controller.problem(), controller.problem_detail(), address);
    }
    usleep(kBootStepUs);
    controller.look(monotonic_ns());
    progress.look();
  }
  return {};
}

Result<void> NvmeDrive::create(Fd device, const std::string& address, std::span<std::byte> memory,
                               std::span<const NvmeQueueMemory> queues, const NvmeOptions& options,
                               NvmeCounters& counters) {
  BP_TRY(device_.open(std::move(device), address, static_cast<uint32_t>(queues.size())));
  controller_.create(device_, memory, queues, options, counters, monotonic_ns());
  auto ready = wait_until_ready(controller_, address);
  if (!ready.ok()) {
    device_.close();
    return ready;
  }
  for (uint32_t i = 0; i < queue_count(); ++i) queues_.emplace_back(*queues[i].counters);
  return {};
}

void NvmeDrive::attach(EventLoop& control, std::span<EventLoop* const> loops) {
  BP_ASSERT(loops.size() == queue_count() && loop_ == nullptr);
  loop_ = &control;
  const auto look = [](void* self) noexcept { static_cast<NvmeDrive*>(self)->look(); };
  timer_.expired = look_call_.function = look;
  timer_.context = look_call_.context = this;
  for (uint32_t i = 0; i < queue_count(); ++i) {
    queues_[i].attach(device_, controller_.queue_pair(i), i, *loops[i], control, look_call_);
  }
}

// ---- On the shard of its control ----------------------------------------------------------------

bool NvmeDrive::is_valid() const noexcept {
  const bool is_closed = controller_.state() == State::kClosed;
  if (is_taken_back_ && (!is_closed || request_watch_.is_watched())) return false;
  const bool must_close = must_close_.load(std::memory_order_relaxed);
  return (!must_close && !is_shut_down()) || controller_.is_let_go_of();
}

void NvmeDrive::start(StreamSockets& sockets) noexcept {
  BP_DCHECK(loop_->is_own_thread() && &sockets.loop() == loop_);
  sockets_ = &sockets;
  request_watch_.fd = device_.request_fd();
  request_watch_.events = POLLIN;
  request_watch_.ready = &NvmeDrive::asked_for;
  request_watch_.context = this;
  const int refused = sockets.start_watching(request_watch_);
  BP_ASSERT(refused == 0);  // the plan counts the watch
  look();
}

void NvmeDrive::look() noexcept {
  BP_DCHECK(loop_->is_own_thread());
  BP_KEEPS_VALID(*this);
  const uint64_t next_ns = controller_.look(loop_->now_ns());
  if (!controller_.is_let_go_of()) return loop_->timers().arm(timer_, next_ns);
  loop_->timers().cancel(timer_);
  is_shut_down_.store(true, std::memory_order_release);
  // No shard uses its registers any more, so the device may be closed.
  if (is_taken_back_) must_close_.store(true, std::memory_order_release);
  is_taken_back_ = false;
}

void NvmeDrive::asked_for(void* self, uint32_t) noexcept {
  auto& drive = *static_cast<NvmeDrive*>(self);
  BP_KEEPS_VALID(drive);
  drive.sockets_->stop_watching(drive.request_watch_);
  drive.is_taken_back_ = true;
  if (drive.controller_.state() != State::kClosed) {
    drive.controller_.give_up(NvmeProblem::kTakenBack);
  }
  drive.look();
}

void NvmeDrive::shut_down(void* self) noexcept {
  auto& drive = *static_cast<NvmeDrive*>(self);
  BP_DCHECK(drive.loop_->is_own_thread());
  drive.controller_.shut_down(drive.loop_->now_ns());
  drive.look();
}

// ---- From the main thread -----------------------------------------------------------------------

// The kernel resets the device on close, which takes long enough to delay a shard. So the main
// thread does it.
void NvmeDrive::tick() noexcept {
  if (must_close_.exchange(false, std::memory_order_acquire)) device_.close();
}

void NvmeDrive::request_shut_down() noexcept {
  if (!is_shut_down()) loop_->submit(shut_down_call_);
}

}  // namespace bedplate
