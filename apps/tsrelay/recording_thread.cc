#include "apps/tsrelay/recording_thread.h"

#include <utility>

#include <poll.h>

#include "platform/units.h"

namespace bedplate::relay {
namespace {

constexpr uint64_t kPatienceNs = 5 * kNsPerSecond;

}  // namespace

Result<void> RecordingThread::start(std::vector<Recording*> recordings) {
  BP_ASSERT(!is_running_);
  recordings_ = std::move(recordings);
  BP_TRY(thread_.start(
      "recordings", [](void* self) noexcept { static_cast<RecordingThread*>(self)->run(); }, this));
  is_running_ = true;
  return {};
}

bool RecordingThread::stop() noexcept {
  if (!is_running_) return true;
  is_running_ = false;
  must_stop_.store(true, std::memory_order_release);
  bell_.ring();
  return thread_.join_or_leave(kPatienceNs);
}

// A ring before announce_sleep() is not lost: look() follows it.
void RecordingThread::run() noexcept {
  const auto look = [this] {
    if (!is_begun_.load(std::memory_order_acquire)) return;
    for (Recording* recording : recordings_) recording->prepare();
  };
  while (!must_stop_.load(std::memory_order_acquire)) {
    bell_.announce_sleep();
    look();
    if (!must_stop_.load(std::memory_order_acquire)) {
      pollfd event = {.fd = bell_.event_fd(), .events = POLLIN, .revents = 0};
      ::poll(&event, 1, -1);
    }
    bell_.announce_awake();
    bell_.acknowledge();
  }
}

}  // namespace bedplate::relay
