// Wakes a shard when frames come to one queue of a port.
//
// Kernel interfaces have a descriptor that is readable while frames wait (af_packet, af_xdp, tap).
// Some devices interrupt, if their driver is asked to, through a descriptor that counts. The others
// wake nobody: their queues are polled by time (port_queue_datapath.h).
//
// The descriptor is watched from the beginning of a sleep until it wakes the shard once, so a busy
// shard pays nothing. If it wakes the shard repeatedly without frames (no buffer is free, the link
// is down), it is not watched until frames have come. Until a device has interrupted once, its
// queue is polled by time as well.
//
// Invariants, checked by is_valid(): 1. It watches only if there is a descriptor. 2. At most
// kVainMax wakes in a row were without frames. 3. The driver is asked only if the descriptor is an
// interrupt's.
#pragma once

#include <cstdint>

#include "platform/counter.h"
#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/watch.h"

namespace bedplate {

class Port;
class StreamSockets;

struct WakeDescriptor {
  int fd = -1;                // -1: the device wakes nobody
  bool is_interrupt = false;  // the driver is asked for each interrupt, and the count is read
};

// The descriptor of `queue`. The driver owns it; it is open until the port is closed. Requires: the
// port is started. Threads: before the seal.
WakeDescriptor find_wake_descriptor(const Port& port, uint16_t queue) noexcept;

// Threads: its shard's, but for create().
class QueueWake {
 public:
  struct Options {
    WakeDescriptor descriptor;
    StreamSockets* sockets = nullptr;  // of the shard
    uint16_t port = 0;                 // DPDK's numbers
    uint16_t queue = 0;
    Counter* wakes = nullptr;
  };

  QueueWake() noexcept = default;
  QueueWake(const QueueWake&) = delete;
  QueueWake& operator=(const QueueWake&) = delete;

  // Called at most once, before the loop runs. Without it frames wake nobody. The objects in
  // `options` outlive this one's use.
  void create(const Options& options) noexcept;

  // The shard is about to sleep, and polls the queue once more before it does.
  void arm() noexcept;
  // Frames have come.
  void note_frames() noexcept { vain_count_ = 0; }
  // The longest that the shard may sleep without a poll of the queue; 0: the queue must be polled
  // by time.
  uint64_t sleep_max_ns() const noexcept;

  bool is_valid() const noexcept {
    return (watch_.fd >= 0 || !watch_.is_watched()) && vain_count_ <= kVainMax &&
           (options_.descriptor.is_interrupt || !is_asked_for_);
  }

 private:
  // After so many vain wakes in a row the descriptor is not watched.
  static constexpr uint32_t kVainMax = 3;
  // The most time that a lost interrupt costs.
  static constexpr uint64_t kInterruptLookNs = 100 * kNsPerMs;

  void woken(uint32_t events) noexcept;

  Options options_;
  Watch watch_;
  uint32_t vain_count_ = 0;    // wakes since frames came
  bool has_woken_ = false;     // at least once, ever
  bool is_asked_for_ = false;  // an interrupt was requested
};

}  // namespace bedplate
