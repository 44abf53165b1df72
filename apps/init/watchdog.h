// The machine's watchdog (watchdog-api in the kernel's documentation): a device that resets the
// machine unless it is fed in time. It is fed only while every shard's event loop turns, so a loop
// that hangs resets the machine, and so does a control thread that does.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "apps/boot/configuration.h"
#include "apps/boot/counters_file.h"
#include "platform/cache_line.h"
#include "platform/file.h"
#include "platform/result.h"
#include "transport/event_loop.h"

namespace bedplate {

class Watchdog {
 public:
  // Requires: called before the others, once. Nothing more happens unless `settings.enabled`.
  void create(const WatchdogSettings& settings) noexcept { settings_ = settings; }

  // As Supervisor's; the loop then marks the time again and again.
  void loop_made(uint32_t index, EventLoop& loop);
  void loop_begins(uint32_t index) noexcept;

  // Starts the device, with its timeout. Errors: no device, and it is required.
  Result<void> start();

  // Feeds it if every loop has marked the time lately. Threads: the control thread.
  void feed() noexcept;

  // Feeds it, whatever the loops do. Fit for signal handlers.
  void keep_alive() noexcept;

  // Stops the device, where it lets itself be stopped. Fit for signal handlers.
  void stop() noexcept;

 private:
  struct alignas(kCacheLineBytes) Beat {
    Timer timer;
    EventLoop* loop = nullptr;
    uint64_t period_ns = 0;
    std::atomic<uint64_t> last_ns{0};  // relaxed: nothing else depends on it
  };
  static void mark(void* beat) noexcept;

  WatchdogSettings settings_;
  Fd device_;
  std::array<Beat, kShardCountMax> beats_;
  uint32_t beat_count_ = 0;
  uint64_t fed_ns_ = 0;
  bool is_hungry_ = false;  // and that was logged
};

}  // namespace bedplate
