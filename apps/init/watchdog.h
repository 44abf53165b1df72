// The machine's watchdog (watchdog-api in the kernel's documentation): a device that resets the
// machine unless it is fed in time. The main thread feeds it, and only while every shard's event
// loop turns. So a hanging loop or a hanging main thread resets the machine.
//
// A reset leaves no record. So when half of the device's timeout is left, the main thread makes a
// hanging shard's thread crash (crash.h): the crash logs the call stack and ends the machine. The
// device resets the machine if the crash handler hangs, too, or if the main thread hangs.
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
  // Called before the others, once. The watchdog does nothing unless `settings.enabled`.
  void create(const WatchdogSettings& settings) noexcept { settings_ = settings; }

  // Called once for each shard, in order; `loop` has a free timer. loop_begins() is called on the
  // shard's thread, before its loop runs. The loop then records the time regularly.
  void loop_made(uint32_t index, EventLoop& loop);
  void loop_begins(uint32_t index) noexcept;

  // Starts the device with the timeout of [watchdog]. If the driver cannot set it, accepts the
  // driver's own timeout if that is at least half of the requested one, and at least 2 s. Errors:
  // no such device, or no such timeout; if the device is not required, this only logs the error.
  Result<void> start();

  // Feeds the device if every loop has recorded the time within half of the device's timeout;
  // crashes a loop's thread whose record is older than the whole timeout. If that thread handles no
  // signal, the main thread crashes instead. Threads: the main thread.
  void feed() noexcept;

  // Feeds the device, regardless of the loops. Fit for signal handlers.
  void keep_alive() noexcept;

  // Stops the device, if the driver allows it. Fit for signal handlers.
  void stop() noexcept;

 private:
  struct alignas(kCacheLineBytes) Beat {
    Timer timer;
    EventLoop* loop = nullptr;
    uint64_t period_ns = 0;
    std::atomic<uint64_t> last_ns{0};  // relaxed: no other data depends on it
    std::atomic<pid_t> thread{0};      // relaxed, too; 0: its loop has not begun
  };
  static void mark(void* beat) noexcept;
  Result<void> set_timeout() noexcept;
  void crash_thread_of(uint32_t index, uint64_t now_ns) noexcept;

  WatchdogSettings settings_;
  Fd device_;
  uint64_t timeout_ns_ = 0;  // of the device
  std::array<Beat, kShardCountMax> beats_;
  uint32_t beat_count_ = 0;
  uint64_t fed_ns_ = 0;
  bool is_hungry_ = false;   // not fed, and logged
  uint64_t crashed_ns_ = 0;  // when a thread was last made to crash
};

}  // namespace bedplate
