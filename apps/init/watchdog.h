// The machine's watchdog (watchdog-api in the kernel's documentation): a device that resets the
// machine unless it is fed in time. It is fed only while every shard's event loop turns, so a
// hanging loop resets the machine, and so does a hanging control thread.
//
// A reset leaves no record. So half of the device's timeout before it, the hanging thread is made
// to crash (crash.h): that logs its call stack and ends the machine as every crash does; the device
// is for hangs on the way. Nobody does this for the control thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <sys/types.h>

#include "apps/configuration/configuration.h"
#include "apps/init/image_settings.h"
#include "platform/cache_line.h"
#include "platform/file.h"
#include "platform/result.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

class Watchdog {
 public:
  // Requires: called before the others, once. Nothing more happens unless `settings.enabled`.
  void create(const WatchdogSettings& settings) noexcept { settings_ = settings; }

  // Called once for each shard, the second on its thread, before its loop runs: the loop then marks
  // the time again and again. `loop` has room for a timer.
  void loop_made(uint32_t index, EventLoop& loop);
  void loop_begins(uint32_t index) noexcept;

  // Starts the device with the timeout of [watchdog]; if the driver cannot set one, with its own,
  // if that is at least half of the one asked for. Errors: no such device, and it is required.
  Result<void> start();

  // Feeds it if every loop has marked the time within half of the device's timeout; crashes a
  // loop's thread whose mark is older than the whole timeout. Threads: the control thread.
  void feed() noexcept;

  // Feeds it, whatever the loops do. Fit for signal handlers.
  void keep_alive() noexcept;

  // Stops the device, if the driver allows that. Fit for signal handlers.
  void stop() noexcept;

 private:
  struct alignas(kCacheLineBytes) Beat {
    Timer timer;
    EventLoop* loop = nullptr;
    uint64_t period_ns = 0;
    std::atomic<uint64_t> last_ns{0};  // relaxed: nothing else depends on it
    std::atomic<pid_t> thread{0};      // relaxed, too; 0: it has not begun
  };
  static void mark(void* beat) noexcept;
  Result<void> set_timeout() noexcept;
  void crash_thread_of(uint32_t index, uint64_t now_ns) noexcept;

  WatchdogSettings settings_;
  Fd device_;
  uint64_t timeout_ns_ = 0;  // the device's
  std::array<Beat, kShardCountMax> beats_;
  uint32_t beat_count_ = 0;
  uint64_t fed_ns_ = 0;
  bool is_hungry_ = false;   // and that was logged
  uint64_t crashed_ns_ = 0;  // when a thread was told to crash
};

}  // namespace bedplate
