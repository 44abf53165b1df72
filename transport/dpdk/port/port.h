// A port: one device of DPDK with its queues and its buffers.
//
// It is attached by name, so that an error names the device at fault; configured with one queue
// each way for each shard; and started. It turns on the device's offloads, and reports them
// (PortCounters::offloads).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <rte_ethdev.h>

#include "platform/result.h"
#include "transport/dpdk/port/mbuf_pool.h"
#include "transport/dpdk/port/memif_link.h"
#include "transport/dpdk/port/port_counters.h"
#include "transport/dpdk/port/port_device.h"

namespace bedplate {

struct PortOptions {
  std::string name;  // of a-z, 0-9 and -, 16 bytes at most
  PortDevice device;
  bool is_memif_server = false;
  rte_ether_addr mac = {};  // for a device without an address of its own (PortDevice::has_address)
  uint32_t queue_count = 1;
  uint32_t descriptor_count = 1024;  // of each queue, each way; the device may have its own limits
  uint32_t mtu_bytes = 1500;
  bool strips_vlan = false;      // if the device can
  bool is_promiscuous = false;   // also takes frames for others
  bool takes_all_groups = true;  // multicast, including groups that nobody joined
  bool wants_interrupts = true;  // if the device has them
  uint32_t buffer_count = 4096;
  // The pool's, of mbuf_shape(...).bytes(). The port's buffers use it until the process ends.
  std::span<std::byte> memory;
  PortCounters* counters = nullptr;  // outlive the port
};

// The shape of a port's buffers: each holds a frame of that MTU with a VLAN tag.
MbufShape mbuf_shape(uint32_t mtu_bytes, uint32_t buffer_count) noexcept;
// The part of EAL's heap that one port needs.
uint64_t port_heap_bytes(const PortOptions& options) noexcept;

// Threads: the main thread; from the seal on, queues are their shards' (port_queue_datapath.h).
class Port {
 public:
  static constexpr uint32_t kQueueCountMax = 32;

  Port() noexcept = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  ~Port();

  // Requires: EAL is started; not open. Before the seal: it allocates. Errors (kSystem): the
  // device's, with a cure if one is known.
  Result<void> open(const PortOptions& options);
  // Starts to receive. A memif client starts without its server, too: watch() connects it later.
  // Before the seal. Requires: open; called once. Errors (kSystem): the device's.
  Result<void> start();
  // Stops the port and releases the device. Requires: no shard uses a queue any more. Does nothing
  // if the port is not open.
  void close() noexcept;

  // Reads the link's state, connects a memif client whose link is down, and updates the counters.
  // Does nothing if the port is not open, or its device is gone. Threads: one at a time.
  void watch() noexcept;

  const std::string& name() const noexcept { return options_.name; }
  const PortOptions& options() const noexcept { return options_; }
  uint16_t number() const noexcept { return number_; }  // DPDK's
  bool is_open() const noexcept { return number_ != RTE_MAX_ETHPORTS; }
  bool has(PortOffload offload) const noexcept { return (offloads_ & offload) != 0; }
  rte_ether_addr mac() const noexcept { return mac_; }
  uint32_t mtu_bytes() const noexcept { return options_.mtu_bytes; }
  MbufPool& buffers() noexcept { return *buffers_; }
  // As watch() last saw it. Threads: that of watch().
  PortState state() const noexcept { return state_; }
  // Whether the device was configured to interrupt for received frames (queue_wake.h).
  bool asks_interrupts() const noexcept { return asks_interrupts_; }
  // Whether DPDK's burst functions may be called: false while a memif waits for its server.
  // Threads: any; for a memif, inside a gate (memif_gate.h).
  bool is_running() const noexcept { return is_running_.load(std::memory_order_relaxed); }

 private:
  Result<void> attach();
  Result<void> attach_rings();
  std::string arguments_of_device() const;
  Result<void> configure();
  Result<void> set_up_queues(const rte_eth_dev_info& info);
  int start_device();
  bool is_memif_client() const noexcept;
  PortState look() noexcept;
  Error failed(const char* doing, int outcome) const;

  PortOptions options_;
  uint16_t number_ = RTE_MAX_ETHPORTS;
  uint64_t offloads_ = 0;
  rte_ether_addr mac_ = {};
  MbufPool* buffers_ = nullptr;  // never destroyed: mbufs may be anywhere
  PortState state_ = PortState::kDown;
  bool is_started_ = false;
  bool asks_interrupts_ = false;
  std::atomic<bool> is_running_{false};
  MemifClient memif_client_;
};

}  // namespace bedplate
