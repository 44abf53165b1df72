#include "apps/init/watchdog.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <fcntl.h>

#include <linux/watchdog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kFeedPeriodNs = 500 * kNsPerMs;
// The shortest timeout of a device, the same as in the configuration.
constexpr int kTimeoutMinS = 2;

}  // namespace

void Watchdog::loop_made(uint32_t index, EventLoop& loop) {
  if (!settings_.enabled) return;
  BP_ASSERT(index == beat_count_ && index < beats_.size());  // called in the order of the shards
  Beat& beat = beats_[index];
  beat.loop = &loop;
  beat.period_ns = settings_.timeout_s * kNsPerSecond / 8;
  beat.timer.expired = &Watchdog::mark;
  beat.timer.context = &beat;
  beat_count_ = index + 1;
}

void Watchdog::loop_begins(uint32_t index) noexcept {
  if (!settings_.enabled) return;
  BP_ASSERT(index < beat_count_);
  BP_DCHECK(!beats_[index].timer.is_armed());  // called once
  beats_[index].thread.store(gettid(), std::memory_order_relaxed);
  mark(&beats_[index]);
}

void Watchdog::mark(void* context) noexcept {
  auto* beat = static_cast<Beat*>(context);
  const uint64_t now = monotonic_ns();
  beat->last_ns.store(now, std::memory_order_relaxed);
  beat->loop->timers().arm(beat->timer, now + beat->period_ns);
}

// Drivers round the timeout, and some have a fixed one: the driver's answer counts.
Result<void> Watchdog::set_timeout() noexcept {
  const char* path = settings_.device.c_str();
  const auto wanted_s = static_cast<int>(settings_.timeout_s);
  int timeout_s = wanted_s;
  if (!device_.is_open() ||
      (ioctl(device_.number(), WDIOC_SETTIMEOUT, &timeout_s) != 0 &&
       (errno != EOPNOTSUPP || ioctl(device_.number(), WDIOC_GETTIMEOUT, &timeout_s) != 0))) {
    return error_from_errno("starting the watchdog %s with %d s", path, wanted_s)
        .set_cure("name its driver in [watchdog], set another timeout_s, or set required = false");
  }
  if (timeout_s < kTimeoutMinS || 2 * int64_t{timeout_s} < wanted_s) {
    return error_while("starting the watchdog %s with %d s", path, wanted_s)
        .set_answer("it resets the machine after %d s, and this cannot be changed", timeout_s)
        .set_cure("set timeout_s in [watchdog] to %d, or required = false",
                  std::max(timeout_s, kTimeoutMinS));
  }
  timeout_ns_ = static_cast<uint64_t>(timeout_s) * kNsPerSecond;
  BP_LOG_INFO("watchdog %s: resets the machine after %d s%s", path, timeout_s,
              timeout_s == wanted_s ? "" : ", as its driver chose");
  return {};
}

Result<void> Watchdog::start() {
  if (!settings_.enabled) return {};
  BP_ASSERT(!device_.is_open());
  device_ = Fd(open(settings_.device.c_str(), O_WRONLY | O_CLOEXEC));
  if (auto set = set_timeout(); !set.ok()) {
    stop();
    if (settings_.required) return set;
    log_error(set.error());
    return {};
  }
  const uint64_t now = monotonic_ns();
  for (uint32_t i = 0; i < beat_count_; ++i) {
    beats_[i].last_ns.store(now, std::memory_order_relaxed);
  }
  return {};
}

void Watchdog::feed() noexcept {
  const uint64_t now = monotonic_ns();
  if (!device_.is_open() || now - fed_ns_ < kFeedPeriodNs) return;
  BP_ASSERT(timeout_ns_ > 0);  // an open device has a timeout
  const uint64_t patience_ns = timeout_ns_ / 2;
  for (uint32_t i = 0; i < beat_count_; ++i) {
    const uint64_t last = beats_[i].last_ns.load(std::memory_order_relaxed);
    if (now < last + patience_ns) continue;
    if (!is_hungry_) {
      BP_LOG_ERROR("watchdog: no longer fed: the event loop of shard %u has been stuck for %" PRIu64
                   " s",
                   i, (now - last) / kNsPerSecond);
    }
    is_hungry_ = true;
    if (now >= last + timeout_ns_) crash_thread_of(i, now);
    return;
  }
  is_hungry_ = false;
  fed_ns_ = now;
  keep_alive();
}

// Signals the hanging thread first, because its stack shows where it hangs. If that thread takes no
// signal, as deep in the kernel, the main thread crashes instead.
void Watchdog::crash_thread_of(uint32_t index, uint64_t now_ns) noexcept {
  if (crashed_ns_ != 0 && now_ns - crashed_ns_ < kFeedPeriodNs) return;
  const pid_t thread = beats_[index].thread.load(std::memory_order_relaxed);
  const bool is_deaf = crashed_ns_ != 0 || thread == 0;
  BP_LOG_ERROR("watchdog: the event loop of shard %u hangs%s", index,
               is_deaf ? ", and its thread handles no signal" : "");
  crashed_ns_ = now_ns;
  tgkill(getpid(), is_deaf ? gettid() : thread, SIGABRT);
}

void Watchdog::keep_alive() noexcept {
  if (device_.is_open()) ioctl(device_.number(), WDIOC_KEEPALIVE, 0);
}

void Watchdog::stop() noexcept {
  if (!device_.is_open()) return;
  // "V" tells the driver that the close is intended.
  [[maybe_unused]] const ssize_t written = write(device_.number(), "V", 1);
  device_.close();
}

}  // namespace bedplate
