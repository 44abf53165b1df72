// Wakes a shard when frames come to one queue of a port.
//
// Devices that the kernel carries have a descriptor that is readable while frames wait (af_packet,
// af_xdp, tap); others interrupt, when their driver is asked to, through a descriptor that counts.
// The rest wake nobody, and are polled by time (port_queue_datapath.h).
//
// The descriptor is watched from a sleep on until it wakes once, so a busy shard pays nothing. One
// that wakes for nothing again and again (no buffer is free, the link is down) is not watched until
// frames have come. A device that claims to interrupt is believed once it has done so.
//
// Invariants, which is_valid() looks at: 1. It is watched only if there is a descriptor. 2. It woke
// for nothing kVainMax times in a row at most. 3. The driver is asked only for interrupts.
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
  bool is_interrupt = false;  // the driver is asked for each, and the count is read
};

// The descriptor of queue `queue`. It is the driver's, and open until the port is closed. Requires:
// the port is started. Threads: before the seal.
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

  // Once; before the loop runs. Without it frames wake nobody. All of `options` outlives it.
  void create(const Options& options) noexcept;

  // The shard is about to sleep, and looks at the queue once more before it does.
  void arm() noexcept;
  // Frames have come.
  void note_frames() noexcept { vain_count_ = 0; }
  // How long the shard may sleep without a poll of the queue; 0: it is polled by time.
  uint64_t sleep_max_ns() const noexcept;

  bool is_valid() const noexcept {
    return (watch_.fd >= 0 || !watch_.is_watched()) && vain_count_ <= kVainMax &&
           (options_.descriptor.is_interrupt || !is_asked_for_);
  }

 private:
  // After so many vain wakes in a row it is not watched.
  static constexpr uint32_t kVainMax = 3;
  // A lost interrupt costs no more than this.
  static constexpr uint64_t kInterruptLookNs = 100 * kNsPerMs;

  void woken(uint32_t events) noexcept;

  Options options_;
  Watch watch_;
  uint32_t vain_count_ = 0;    // wakes since frames came
  bool has_woken_ = false;     // once, ever
  bool is_asked_for_ = false;  // an interrupt
};

}  // namespace bedplate
