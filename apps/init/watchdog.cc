#include "apps/init/watchdog.h"

#include <cinttypes>
#include <fcntl.h>

#include <linux/watchdog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kFeedPeriodNs = 500 * kNsPerMs;

}  // namespace

void Watchdog::loop_made(uint32_t index, EventLoop& loop) {
  if (!settings_.enabled) return;
  Beat& beat = beats_[index];
  loop.timers().reserve_more(1);
  beat.loop = &loop;
  beat.period_ns = settings_.timeout_s * kNsPerSecond / 8;
  beat.timer.expired = &Watchdog::mark;
  beat.timer.context = &beat;
  beat_count_ = index + 1;
}

void Watchdog::loop_begins(uint32_t index) noexcept {
  if (settings_.enabled) mark(&beats_[index]);
}

void Watchdog::mark(void* context) noexcept {
  auto* beat = static_cast<Beat*>(context);
  const uint64_t now = monotonic_ns();
  beat->last_ns.store(now, std::memory_order_relaxed);
  beat->loop->timers().arm(beat->timer, now + beat->period_ns);
}

Result<void> Watchdog::start() {
  if (!settings_.enabled) return {};
  const char* path = settings_.device.c_str();
  device_ = Fd(open(path, O_WRONLY | O_CLOEXEC));
  int timeout_s = static_cast<int>(settings_.timeout_s);
  if (!device_.is_open() || ioctl(device_.number(), WDIOC_SETTIMEOUT, &timeout_s) != 0) {
    Error error = error_from_errno("starting the watchdog %s with %d s", path, timeout_s);
    error.set_cure("name its driver in [watchdog], another timeout_s, or set required = false");
    stop();
    if (settings_.required) return error;
    log_error(error);
    return {};
  }
  const uint64_t now = monotonic_ns();
  for (uint32_t i = 0; i < beat_count_; ++i) {
    beats_[i].last_ns.store(now, std::memory_order_relaxed);
  }
  BP_LOG_INFO("watchdog %s: resets the machine after %d s", path, timeout_s);
  return {};
}

void Watchdog::feed() noexcept {
  const uint64_t now = monotonic_ns();
  if (!device_.is_open() || now - fed_ns_ < kFeedPeriodNs) return;
  const uint64_t patience_ns = settings_.timeout_s * kNsPerSecond / 2;
  for (uint32_t i = 0; i < beat_count_; ++i) {
    const uint64_t last = beats_[i].last_ns.load(std::memory_order_relaxed);
    if (now < last + patience_ns) continue;
    if (!is_hungry_) {
      BP_LOG_ERROR("watchdog: not fed any more: the event loop of shard %u has not turned for "
                   "%" PRIu64 " s", i, (now - last) / kNsPerSecond);
    }
    is_hungry_ = true;
    return;
  }
  is_hungry_ = false;
  fed_ns_ = now;
  keep_alive();
}

void Watchdog::keep_alive() noexcept {
  if (device_.is_open()) ioctl(device_.number(), WDIOC_KEEPALIVE, 0);
}

void Watchdog::stop() noexcept {
  if (!device_.is_open()) return;
  // The letter that says that the close is meant.
  [[maybe_unused]] const ssize_t written = write(device_.number(), "V", 1);
  device_.close();
}

}  // namespace bedplate
