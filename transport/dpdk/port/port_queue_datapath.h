// One queue of a port, each way, on its shard: a poll source of the loop for received frames, and
// the packet layer's queue for sending (net/frame_queue.h).
//
// The loop sleeps while no frames come. Some devices can wake it (queue_wake.h). The others are
// polled now and then: while no frames come, each sleep of the loop may last an eighth longer than
// the one before it, and at most `idle_poll_ns`.
//
// Invariants: 1. next_look_ns_ is at most the greater of `idle_poll_ns` and kFirstLookNs. 2. Bursts
// go through a gate exactly if the device maps memory of a peer. (is_valid checks 1 and 2) 3. A
// device takes and gives no more frames than it was asked for. (poll, send)
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "platform/thread_owner.h"
#include "transport/dpdk/net/frame_queue.h"
#include "transport/dpdk/port/memif_gate.h"
#include "transport/dpdk/port/port.h"
#include "transport/dpdk/port/queue_wake.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

// The consumer of received frames: a packet layer (net/net_stack.h), or a forwarder.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  // The receiver takes ownership of the frames.
  virtual void receive(std::span<rte_mbuf*> frames) noexcept = 0;
  // Does the work that is due. Returns how much there was. Called at each poll of the queue.
  virtual uint32_t advance() noexcept { return 0; }
  // The longest time from now until advance() must be called.
  virtual uint64_t idle_max_ns() const noexcept { return PollSource::kUnlimitedNs; }
};

// Threads: its shard's.
class PortQueue final : public FrameQueue, public PollSource {
 public:
  struct Options {
    Port* port = nullptr;  // outlives it, and is closed only after its last use
    uint16_t index = 0;
    FrameReceiver* receiver = nullptr;      // nullptr: set_receiver() names it
    PortQueueCounters* counters = nullptr;  // nullptr: its own
    uint64_t idle_poll_ns = 5 * kNsPerMs;
  };

  explicit PortQueue(const Options& options) noexcept;
  PortQueue(const PortQueue&) = delete;
  PortQueue& operator=(const PortQueue&) = delete;

  // Sets the receiver, if it is made after the queue. Before the loop runs.
  void set_receiver(FrameReceiver& receiver) noexcept { options_.receiver = &receiver; }
  // Lets `descriptor` wake the shard with these `sockets`. Before the loop runs. Requires: the port
  // is started.
  void wake_by(StreamSockets& sockets, const WakeDescriptor& descriptor) noexcept;
  // From now on polls receive nothing and call no advance(), and sends are refused. A poll or send
  // in progress still ends. Threads: any.
  void cut_off() noexcept { is_cut_off_.store(true, std::memory_order_relaxed); }

  // PollSource
  uint32_t poll(uint32_t budget) noexcept override;
  void announce_sleep() noexcept override;
  uint64_t sleep_max_ns() const noexcept override;

  // FrameQueue
  uint32_t send(std::span<rte_mbuf*> frames) noexcept override;
  bool has_room() const noexcept override { return true; }
  rte_mbuf* allocate() noexcept override;
  rte_mbuf* find(const std::byte* bytes) const noexcept override { return find_mbuf(bytes); }
  rte_ether_addr mac() const noexcept override { return options_.port->mac(); }
  uint32_t mtu_bytes() const noexcept override { return options_.port->mtu_bytes(); }
  FrameOffloads offloads() const noexcept override;

  bool is_valid() const noexcept;

 private:
  uint16_t receive_burst(rte_mbuf** frames, uint16_t count) noexcept;
  uint16_t send_burst(rte_mbuf** frames, uint16_t count) noexcept;

  // The first sleep after a frame may last an eighth longer than this. If only this queue wakes the
  // loop, each sleep is then about an eighth of the whole time since that frame.
  static constexpr uint64_t kFirstLookNs = 50 * kNsPerUs;
  static constexpr uint64_t kGrowth = 8;

  Options options_;
  ThreadOwner owner_;  // held by the thread that polls, in debug builds
  uint16_t number_ = 0;
  PortQueueCounters own_counters_;
  QueueWake wake_;
  std::optional<MemifGate> gate_;         // of a memif
  uint64_t next_look_ns_ = kFirstLookNs;  // from the start of the next sleep
  std::atomic<bool> is_cut_off_{false};
};

}  // namespace bedplate
