// The interfaces that an event loop (event_loop.h) calls: sources, which it polls in each round,
// and a sleeper, in which it blocks when no source has work.
#pragma once

#include <cstdint>

#include "platform/version.h"

namespace bedplate {

// A poll source of an event loop: a FIFO, a completion queue, sockets. The loop calls all
// functions, on its thread. They neither block nor call run().
class PollSource {
 public:
  virtual ~PollSource() = default;
  // Handles at most about `budget` items; returns how many. 0: there was nothing.
  virtual uint32_t poll(uint32_t budget) noexcept = 0;
  // For sources that the loop's doorbell alone does not wake. announce_sleep(): the loop is about
  // to sleep, and polls once more before it does. announce_awake(): it is awake again.
  virtual void announce_sleep() noexcept {}
  virtual void announce_awake() noexcept {}
  // The longest that the loop may sleep, from now on: for sources that wait for something that
  // rings no bell. The loop asks before each sleep, after announce_sleep().
  virtual uint64_t sleep_max_ns() const noexcept { return kUnlimitedNs; }

  static constexpr uint64_t kUnlimitedNs = ~uint64_t{0};
};

// The thing that a loop blocks in.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // Blocks until `deadline_ns` (monotonic; TimerQueue::kNever: for ever), the doorbell rings, or
  // there is something to poll. May return early. Makes no callbacks: the sockets' poll() makes
  // them, when the loop has read the clock again. The sleeper or that poll() acknowledges the
  // doorbell.
  virtual void sleep_until(uint64_t deadline_ns) noexcept = 0;
};

}  // namespace bedplate
