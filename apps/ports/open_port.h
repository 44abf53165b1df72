// A port with all its users. On each of its shards it has a queue, and a packet layer with the
// datagram sockets of services. A port that forwards to another has only queues.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/boot/service_context.h"
#include "apps/ports/port_settings.h"
#include "apps/services/service_plan.h"
#include "transport/dpdk/net/net_stack.h"
#include "transport/dpdk/net/port_datagram_socket.h"
#include "transport/dpdk/net/port_shared_datapath.h"
#include "transport/dpdk/port/port.h"
#include "transport/dpdk/port/port_queue_datapath.h"
#include "transport/sockets/datagram_network.h"

namespace bedplate {

class OpenPort final : public DatagramNetwork {
 public:
  OpenPort() = default;
  OpenPort(const OpenPort&) = delete;
  OpenPort& operator=(const OpenPort&) = delete;

  PortSettings settings;  // the configuration parser fills it; constant after that

  // Order: services call plan_socket(); plan(), create(); services call make_socket(); the seal.
  Result<void> plan_socket(uint32_t shard, const DatagramShape& shape) override;
  Result<void> plan(ServicePlan& plan);
  // The bytes that the port takes from EAL's heap. Requires: plan().
  uint64_t heap_bytes() const noexcept;
  Result<void> create(ServiceContext& context);
  Result<DatagramSocket*> make_socket(uint32_t shard, const DatagramShape& shape) override;
  bool is_on(uint32_t shard) const noexcept override;

  // Threads: the thread of `shard`, before its loop runs.
  void start(uint32_t shard) noexcept;
  // Called after plan() of both. Errors: `other` lacks a queue on one of the shards.
  Result<void> check_forwarding_to(const OpenPort& other) const;
  // Forwards all received frames to `other`, which outlives this. Called after create() of both.
  void forward_to(OpenPort& other) noexcept;
  // Observes the device; stops using its queues once it is gone. Threads: the main thread.
  void watch() noexcept;

 private:
  // A packet layer as the receiver of a queue's frames.
  class Receiver final : public FrameReceiver {
   public:
    void create(NetStack& stack, EventLoop& loop) noexcept;
    void receive(std::span<rte_mbuf*> frames) noexcept override;
    uint32_t advance() noexcept override;
    uint64_t idle_max_ns() const noexcept override;

   private:
    NetStack* stack_ = nullptr;
    EventLoop* loop_ = nullptr;
  };
  // Forwards received frames, and drops frames that the other port does not accept.
  class Forwarder final : public FrameReceiver {
   public:
    void create(PortQueue& out, Counter& dropped) noexcept;
    void receive(std::span<rte_mbuf*> frames) noexcept override;

   private:
    PortQueue* out_ = nullptr;
    Counter* dropped_ = nullptr;
  };
  // The part of the port on one shard.
  struct Lane {
    uint32_t shard = 0;
    EventLoop* loop = nullptr;
    std::unique_ptr<PortQueue> queue;
    std::unique_ptr<NetStack> stack;  // if has_stack()
    Receiver receiver;
    Forwarder forwarder;
    PortQueueCounters* counters = nullptr;
    std::vector<std::unique_ptr<PortDatagramSocket>> sockets;
  };
  // The sockets planned for one shard.
  struct Wanted {
    uint32_t socket_count = 0;
    uint64_t kept_count = 0;  // buffers that its sockets may hold
  };

  bool has_stack() const noexcept { return settings.forwards_to.empty(); }
  bool is_by_vfio() const;
  Result<void> give_pool(VfioPool& vfio);
  std::vector<uint32_t> shards(const Configuration& configuration) const;
  uint64_t needed_buffer_count() const noexcept;
  std::string instance(const Configuration& configuration, uint32_t shard) const;
  NetOptions net_options() const;
  Result<void> create_lane(ServiceContext& context, uint32_t index);
  Result<void> create_stack(ServiceContext& context, Lane& lane, uint32_t index);
  Lane* find_lane(uint32_t shard) noexcept;
  PortOptions port_options() const;

  std::vector<uint32_t> shards_;  // the shards with a queue; empty before plan()
  std::vector<Wanted> asked_;     // sockets for the next plan(), by shard
  std::vector<Wanted> wanted_;    // sockets of the last plan()
  Port port_;                     // declared before lanes_, so destroyed after them
  std::unique_ptr<PortShared> shared_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace bedplate
